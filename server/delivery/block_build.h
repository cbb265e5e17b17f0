#ifndef BALLAST_SERVER_DELIVERY_BLOCK_BUILD_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_BUILD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/block/block_plan.h"
#include "proto/schedule/delivery_rule.h"
#include "server/config/model_profile.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/work_queue.h"

namespace ballast {

// A block that is known in size but not yet in memory.
struct PlannedBlock {
  BlockPlan plan;
  // Of every sample's images, sample after sample in the plan's order, for
  // either module; sample i's begin at first_grid[i] and end at
  // first_grid[i+1].
  std::vector<ImageGrid> grids;
  std::vector<uint32_t> first_grid;
};

// PlanBlock, with the grids that building needs. Errors: PlanBlock's.
absl::StatusOr<PlannedBlock> PlanForBuilding(const v1::StepSchedule& schedule,
                                             uint32_t micro_batch,
                                             const v1::Role& role,
                                             const DeliveryRule& delivery,
                                             const BlockGeometry& geometry);

// Fills one block: an item a sample, each written in its place without a lock.
// The item that ends last takes the checksum and reports. After the first
// failure the samples that have not begun are passed over.
class BlockBuild : public WorkItems {
 public:
  // The XXH3-64 of the block, or why there is none.
  using Finished = std::function<void(absl::StatusOr<uint64_t> checksum)>;

  // `memory`, planned.plan.bytes() long, is written until `finished` is called;
  // `builder` is not owned. `finished` runs once, on the thread of the last
  // item (in Start, where there is none).
  BlockBuild(PlannedBlock planned, const SampleBuilder* builder,
             absl::Span<uint8_t> memory, Finished finished);

  // Writes the tables; to be called once, before any item runs. False when
  // there are no items: then the block is finished.
  bool Start();

  // Samples that have not begun are passed over. From any thread.
  void Cancel();

  uint32_t items() const override { return planned_.plan.samples.size(); }
  void Run(uint32_t item) override;

 private:
  void Fail(absl::Status status);
  absl::Status BuildSample(uint32_t item);
  void Finish();

  const PlannedBlock planned_;
  const SampleBuilder* const builder_;
  const absl::Span<uint8_t> memory_;
  const Finished finished_;
  std::atomic<uint32_t> remaining_;
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_BUILD_H_
