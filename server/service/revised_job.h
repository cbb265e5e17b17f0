#ifndef BALLAST_SERVER_SERVICE_REVISED_JOB_H_
#define BALLAST_SERVER_SERVICE_REVISED_JOB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/schedule/revised_scheduler.h"

namespace ballast {

// Interface to the opened jobs of all revisions: what a server serves its steps
// from. They stay open until the end, since a rank may resume at any step.
// Thread-compatible; scheduler() is thread-safe.
class RevisedJob {
 public:
  virtual ~RevisedJob() = default;

  // A revision that this server can serve.
  struct Candidate {
    virtual ~Candidate() = default;

    uint64_t first_step = 0;
    std::string config;
    std::string fingerprint;
    std::vector<std::string> differences;  // ListDifferences
    std::vector<std::string> notes;        // ListUntaken
  };

  // Composes the revision of `config`, the text of a file, after the last one,
  // and opens it; changes nothing. Blocks on the disk. Errors: as the job's.
  virtual absl::StatusOr<std::unique_ptr<Candidate>> Open(
      const std::string& config, uint64_t first_step) const = 0;

  // Serves the steps from its first one on by `candidate`, which Open returned
  // and which follows the last one.
  virtual void Apply(std::unique_ptr<Candidate> candidate) = 0;

  virtual size_t revisions() const = 0;

  RevisedScheduler* scheduler() { return &scheduler_; }
  const std::string& fingerprint() const {
    return scheduler_.fingerprint().hash();
  }

 protected:
  // `own` is the scheduler of the job's own configuration, not owned; it
  // outlives this.
  explicit RevisedJob(const Scheduler* own) : scheduler_(own) {}

  RevisedScheduler scheduler_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISED_JOB_H_
