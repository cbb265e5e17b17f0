#ifndef BALLAST_SERVER_SCHEDULE_FILLED_STEPS_H_
#define BALLAST_SERVER_SCHEDULE_FILLED_STEPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/model/model_images.h"
#include "server/sample/source_index.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/step_plan.h"

namespace ballast {

// What fills a step (batch.tokens, batch.packs).
struct StepFill {
  // A step takes whole units of so many samples while its tokens are at most
  // `tokens`, but at least one unit: so it has more than `tokens` less the
  // tokens of the next unit, and more than `tokens` only if it is one unit.
  uint64_t tokens = 0;
  uint32_t unit = 1;
  // Without `tokens`: as many samples as `packs` packs of `pack_tokens` hold if
  // they are packed in order (PackInOrder), each padded to a multiple of
  // `align`. So it has `packs` packs exactly.
  uint32_t packs = 0;
  uint64_t pack_tokens = 0;
  uint32_t align = 1;
};

// Divides samples, in order, into steps. Pure; thread-compatible.
class StepFiller {
 public:
  explicit StepFiller(const StepFill& fill) : fill_(fill) {}

  // Takes the length in tokens of the next sample. Returns how many of the
  // samples taken so far, in all, precede the step that has just begun; 0: none
  // has.
  uint64_t Add(uint32_t length);

 private:
  const StepFill fill_;
  uint64_t taken_ = 0;
  uint64_t tokens_ = 0;       // of the step, or its last pack
  uint64_t unit_tokens_ = 0;  // of samples that are no whole unit yet
  uint32_t packs_ = 0;
};

// The starts of the steps of train that StepFill fills, found from position 0
// on as they are needed, 8 bytes a step. The same on every server.
class TokenSteps final : public StepStarts {
 public:
  // Sets `lengths`, in tokens, of the samples from position `first` on. Called
  // by one thread at a time. May use threads.
  using GetLengths =
      std::function<absl::Status(uint64_t first, absl::Span<uint32_t> lengths)>;

  // Steps begin before position `end`. `known` are starts that have been found
  // before, from position 0 on, or none.
  TokenSteps(const StepFill& fill, GetLengths get_lengths, uint64_t end,
             std::vector<uint64_t> known = {});

  // Errors: OUT_OF_RANGE (the step begins at `end` or later); UNAVAILABLE
  // (after FindInParts); as `get_lengths`.
  absl::StatusOr<uint64_t> Start(uint64_t n) const override;
  absl::StatusOr<uint64_t> CountEnded(uint64_t position) const override;
  void FindInParts(Clock* clock) const override;

  // The starts that have been found so far.
  std::vector<uint64_t> known() const;

  // Calls `save` with all starts, now if there are more than `saved`, and later
  // whenever so many have been found that it is worth while; one call at a
  // time. Other threads go on with the starts that are known meanwhile.
  using Save = std::function<void(const std::vector<uint64_t>& starts)>;
  void SaveFound(Save save, uint64_t saved) const;

 private:
  // Whether there are more than `count` starts, or one after `position`.
  bool Knows(uint64_t count, uint64_t position) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return starts_.size() > count || starts_.back() > position;
  }
  // Finds starts until Knows.
  absl::Status Extend(uint64_t count, uint64_t position) const;
  void SaveIfMany() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(finding_);

  const StepFill fill_;
  const GetLengths get_lengths_;
  const uint64_t end_;
  // One thread finds at a time, without holding up those that know their step.
  mutable Mutex finding_;
  mutable Save save_ ABSL_GUARDED_BY(finding_);
  mutable uint64_t saved_ ABSL_GUARDED_BY(finding_) = 0;
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(finding_);
  mutable std::vector<uint64_t> starts_ ABSL_GUARDED_BY(mutex_);
  mutable Clock* clock_ ABSL_GUARDED_BY(mutex_) = nullptr;  // FindInParts
};

// Whether batch.tokens or batch.packs give the steps of train their samples.
bool AreFilled(const v1::Config& config);

// Name of the starts of a job's steps, of those with the same rules and data.
std::string StartsName(const v1::Fingerprint& fingerprint);

// The places of train's samples in the order, and their lengths.
struct FilledSources {
  // The order with changes of the mixture.
  std::function<SampleOrder(const std::vector<SampleOrder::Change>&)> order;
  std::vector<uint32_t> numbers;  // in `indexes`, of the order's sources
  std::vector<const SourceIndex*> indexes;  // not owned
  ModelImages images;
};

// The steps of train that samples fill.
struct FilledSteps {
  std::shared_ptr<const TokenSteps> steps;
  std::vector<StepPositions::Skip> skips;
  std::vector<SampleOrder::Change> mixtures;
  // Samples of the largest step of the first epoch.
  uint64_t largest = 0;
};

// Finds the steps of an epoch, and those before the last change of the mixture,
// from the lengths in the indexes, on one thread a core. `known` are starts
// that were found before under StartsName. `config` is one with AreFilled.
// Errors: as MeasureSample and SourceIndex::sample.
absl::StatusOr<FilledSteps> FindFilledSteps(const v1::Config& config,
                                            const FilledSources& sources,
                                            std::vector<uint64_t> known);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_FILLED_STEPS_H_
