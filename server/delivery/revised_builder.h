#ifndef BALLAST_SERVER_DELIVERY_REVISED_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_REVISED_BUILDER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/delivery/file_sample_builder.h"
#include "server/delivery/sample_builder.h"

namespace ballast {

// Builds the samples of a job that is changed while it runs: those of a step of
// train by the builder of its revision, those of other splits by the first one,
// that of the job's own configuration. Thread-safe.
class RevisedBuilder final : public SampleBuilder {
 public:
  explicit RevisedBuilder(std::unique_ptr<FileSampleBuilder> own)
      : own_(std::move(own)) {}

  // Steps from `first_step` on, which is above that of each Add before, are
  // built by `builder`.
  void Add(uint64_t first_step, std::unique_ptr<FileSampleBuilder> builder) {
    MutexLock lock(&mutex_);
    revisions_.emplace_back(first_step, std::move(builder));
  }

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    return At(request.split, request.step).Build(request);
  }

  const FileSampleBuilder& At(v1::Split split, uint64_t step) const {
    if (split != v1::SPLIT_TRAIN) return *own_;
    MutexLock lock(&mutex_);
    for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
      if (each->first <= step) return *each->second;
    }
    return *own_;
  }

  FileSampleBuilder* own() const { return own_.get(); }

 private:
  const std::unique_ptr<FileSampleBuilder> own_;
  mutable Mutex mutex_;
  std::vector<std::pair<uint64_t, std::unique_ptr<FileSampleBuilder>>>
      revisions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_REVISED_BUILDER_H_
