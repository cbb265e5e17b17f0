#ifndef BALLAST_SERVER_DELIVERY_BLOCK_BUILD_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_BUILD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
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

// A block whose size is known but that is not in memory yet.
struct PlannedBlock {
  BlockPlan plan;
  // The grids of all samples' crops, in the plan's order, for either module.
  // Those of sample i are [first_grid[i], first_grid[i+1]).
  std::vector<ImageGrid> grids;
  std::vector<uint32_t> first_grid;
  // For each grid: the length of the image's file if it travels encoded, else
  // 0.
  std::vector<uint32_t> encoded_bytes;
};

// PlanBlock, plus the grids that building needs. Errors: as PlanBlock.
absl::StatusOr<PlannedBlock> PlanForBuilding(const v1::StepSchedule& schedule,
                                             uint32_t micro_batch,
                                             const v1::Role& role,
                                             const DeliveryRule& delivery,
                                             const BlockGeometry& geometry);

// What the builder gets for sample `item` of the plan, whose payload is
// `payload`, record.payload_bytes long. Points into `planned`.
SampleRequest RequestOf(const PlannedBlock& planned, uint32_t item,
                        absl::Span<uint8_t> payload);

// XXH3-64 of a whole block, which it reads once.
uint64_t BlockChecksum(absl::Span<const uint8_t> block);

// Fills one block: one item per sample, each written to its place without a
// lock. The last item to end computes the checksum, if it is wanted, and calls
// `finished`. After the first failure, samples that have not begun are skipped.
class BlockBuild : public WorkItems {
 public:
  // The block's checksum (BlockChecksum), if it was wanted, or the first
  // failure.
  using Finished =
      std::function<void(absl::StatusOr<std::optional<uint64_t>> checksum)>;

  // `memory`, planned.plan.bytes() long, is written until `finished` is called;
  // `builder` is not owned. `finished` runs once, on the thread of the last
  // item (in Start, if there are no items).
  BlockBuild(PlannedBlock planned, const SampleBuilder* builder,
             absl::Span<uint8_t> memory, bool wants_checksum,
             Finished finished);

  // Writes the tables. Called once, before any item runs. Returns false if
  // there are no items: the block is then finished.
  bool Start();

  // Skips samples that have not begun. May be called from any thread.
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
  const bool wants_checksum_;
  const Finished finished_;
  std::atomic<uint32_t> remaining_;
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_BUILD_H_
