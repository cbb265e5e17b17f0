#include "server/service/opened_revisions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/config_loader.h"
#include "server/job/revision.h"

namespace ballast {
namespace {

// Sources in a store are read ahead by the index that the server started with.
absl::Status CheckStores(const OpenedJob& own, const OpenedJob& next) {
  for (size_t i = 0; i < own.sources.size(); ++i) {
    if (!own.sources[i]->InStore() ||
        own.sources[i]->index().digest() == next.sources[i]->index().digest()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "source ", own.config.sources(i).name(),
        " is in a store, and its index would be another one; give the altered "
        "source another name, or restart the job"));
  }
  return absl::OkStatus();
}

}  // namespace

struct OpenedRevisions::OpenedCandidate final : Candidate {
  std::unique_ptr<OpenedJob> job;
};

absl::StatusOr<std::unique_ptr<RevisedJob::Candidate>> OpenedRevisions::Open(
    const std::string& config, uint64_t first_step) const {
  const v1::Config& own = own_->loaded.config;
  const std::string& directory = own_->loaded.directory;
  const std::vector<std::string> listen(own.serve().listen().begin(),
                                        own.serve().listen().end());
  BALLAST_ASSIGN_OR_RETURN(
      LoadedConfig offered,
      ParseConfig(config, "the offered file", directory, listen));
  // A flag of this server, not a key of the file.
  offered.config.mutable_topology()->set_meeting(own.topology().meeting());
  auto candidate = std::make_unique<OpenedCandidate>();
  candidate->first_step = first_step;
  candidate->config = config;
  candidate->notes = ListUntaken(own, offered.config);
  LoadedConfig composed;
  composed.directory = directory;
  BALLAST_ASSIGN_OR_RETURN(
      composed.config,
      ComposeRevision(last().loaded.config, offered.config, first_step));
  absl::StatusOr<OpenedJob> opened = OpenJob(composed);
  if (absl::IsFailedPrecondition(opened.status())) {
    // Indexing it where it is would take the index from the running job.
    return absl::FailedPreconditionError(absl::StrCat(
        opened.status().message(),
        " (an index that the running job uses stays as it is: where the change "
        "needs another, give the source another `index` in the new file, and "
        "index that)"));
  }
  BALLAST_RETURN_IF_ERROR(opened.status());
  OpenedJob job = *std::move(opened);
  candidate->job = std::make_unique<OpenedJob>(std::move(job));
  guard_(candidate->job.get());
  BALLAST_RETURN_IF_ERROR(
      CheckRevision(*last().scheduler, *candidate->job->scheduler, first_step));
  BALLAST_RETURN_IF_ERROR(CheckStores(*own_, *candidate->job));
  candidate->differences =
      ListDifferences(last().scheduler->fingerprint(),
                      candidate->job->scheduler->fingerprint());
  candidate->fingerprint = candidate->job->scheduler->fingerprint().hash();
  return candidate;
}

void OpenedRevisions::Apply(std::unique_ptr<Candidate> candidate) {
  auto& opened = static_cast<OpenedCandidate&>(*candidate);
  const OpenedJob& job = *opened.job;
  if (builder_ != nullptr) {
    builder_->Add(candidate->first_step,
                  std::make_unique<FileSampleBuilder>(
                      job.config, job.source_pointers(), job.text.get(),
                      job.scheduler.get(), *builder_->own()));
  }
  // After the builder, which the first block of the step needs.
  scheduler_.Add(candidate->first_step, job.scheduler.get());
  opened_.push_back(std::move(opened.job));
}

}  // namespace ballast
