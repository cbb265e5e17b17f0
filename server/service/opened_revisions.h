#ifndef BALLAST_SERVER_SERVICE_OPENED_REVISIONS_H_
#define BALLAST_SERVER_SERVICE_OPENED_REVISIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/delivery/file_sample_builder.h"
#include "server/job/job_setup.h"
#include "server/service/revision_member.h"

namespace ballast {

// Opens revisions as a job is opened: sources, tokenizer and scheduler.
// builder() is thread-safe.
class OpenedRevisions final : public RevisedJob {
 public:
  // Prepares the sources of an opened revision for reading.
  using Guard = std::function<void(OpenedJob*)>;

  // `own` is the job's own configuration, not owned; it outlives this.
  OpenedRevisions(const OpenedJob* own, Guard guard)
      : RevisedJob(own->scheduler.get()), own_(own), guard_(std::move(guard)) {}

  // Errors: as ParseConfig, ComposeRevision, OpenJob and CheckRevision;
  // INVALID_ARGUMENT (a source in a store gets another index).
  absl::StatusOr<std::unique_ptr<Candidate>> Open(
      const std::string& config, uint64_t first_step) const override;
  void Apply(std::unique_ptr<Candidate> candidate) override;
  size_t revisions() const override { return opened_.size(); }

  // Owned by the loader, once given; must be given before Apply.
  void SetBuilder(RevisedBuilder* builder) { builder_ = builder; }
  const RevisedBuilder* builder() const { return builder_; }

 private:
  struct OpenedCandidate;
  // The last revision, or the job's own configuration.
  const OpenedJob& last() const {
    return opened_.empty() ? *own_ : *opened_.back();
  }

  const OpenedJob* const own_;
  const Guard guard_;
  RevisedBuilder* builder_ = nullptr;
  std::vector<std::unique_ptr<OpenedJob>> opened_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_OPENED_REVISIONS_H_
