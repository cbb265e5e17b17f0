#ifndef BALLAST_SERVER_SERVICE_REVISED_JOB_H_
#define BALLAST_SERVER_SERVICE_REVISED_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/revision_service.pb.h"
#include "server/delivery/revised_builder.h"
#include "server/job/job_setup.h"
#include "server/schedule/revised_scheduler.h"

namespace ballast {

// The opened jobs of all revisions: what a server serves its steps from. They
// stay open until the end, since a rank may resume at any step.
// Thread-compatible; scheduler() and builder() are thread-safe.
class RevisedJob {
 public:
  // Prepares the sources of an opened revision for reading.
  using Guard = std::function<void(OpenedJob*)>;

  // `own` is the job's own configuration, not owned; it outlives this.
  RevisedJob(const OpenedJob* own, Guard guard)
      : own_(own), guard_(std::move(guard)), scheduler_(own->scheduler.get()) {}

  // A revision that this server can serve.
  struct Candidate {
    uint64_t first_step = 0;
    std::string config;
    std::unique_ptr<OpenedJob> job;
    std::vector<std::string> differences;  // ListDifferences
    std::vector<std::string> notes;        // ListUntaken

    const std::string& fingerprint() const {
      return job->scheduler->fingerprint().hash();
    }
  };

  // Composes the revision of `config`, the text of a file, after the last one,
  // and opens it; changes nothing. Blocks on the disk. Errors: as ParseConfig,
  // ComposeRevision, OpenJob and CheckRevision; INVALID_ARGUMENT (a source in a
  // store gets another index).
  absl::StatusOr<Candidate> Open(const std::string& config,
                                 uint64_t first_step) const;

  // Serves the steps from its first one on by `candidate`, which follows the
  // last one.
  void Apply(Candidate candidate);

  size_t revisions() const { return opened_.size(); }
  // The last revision, or the job's own configuration.
  const OpenedJob& last() const {
    return opened_.empty() ? *own_ : *opened_.back();
  }
  const OpenedJob& own() const { return *own_; }

  RevisedScheduler* scheduler() { return &scheduler_; }
  // Owned by the loader, once given; must be given before Apply.
  void SetBuilder(RevisedBuilder* builder) { builder_ = builder; }
  const RevisedBuilder* builder() const { return builder_; }

 private:
  const OpenedJob* const own_;
  const Guard guard_;
  RevisedScheduler scheduler_;
  RevisedBuilder* builder_ = nullptr;
  std::vector<std::unique_ptr<OpenedJob>> opened_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISED_JOB_H_
