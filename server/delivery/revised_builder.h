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

// Builds the samples of a job that is changed while it runs: samples of a step
// of train by the builder of its revision, samples of other splits by the first
// one, of the job's own configuration. Thread-safe.
template <typename Builder>
class BuilderOfSteps final : public SampleBuilder {
 public:
  explicit BuilderOfSteps(std::unique_ptr<Builder> own)
      : own_(std::move(own)) {}

  // Steps from `first_step` on, which is above that of each Add before, are
  // built by `builder`.
  void Add(uint64_t first_step, std::unique_ptr<Builder> builder) {
    MutexLock lock(&mutex_);
    revisions_.emplace_back(first_step, std::move(builder));
  }

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    return At(request.split, request.step).Build(request);
  }

  const Builder& At(v1::Split split, uint64_t step) const {
    if (split != v1::SPLIT_TRAIN) return *own_;
    MutexLock lock(&mutex_);
    for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
      if (each->first <= step) return *each->second;
    }
    return *own_;
  }

  Builder* own() const { return own_.get(); }

 private:
  const std::unique_ptr<Builder> own_;
  mutable Mutex mutex_;
  std::vector<std::pair<uint64_t, std::unique_ptr<Builder>>> revisions_
      ABSL_GUARDED_BY(mutex_);
};

using RevisedBuilder = BuilderOfSteps<FileSampleBuilder>;

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_REVISED_BUILDER_H_
