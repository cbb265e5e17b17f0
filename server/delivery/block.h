#ifndef BALLAST_SERVER_DELIVERY_BLOCK_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_H_

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/delivery/worker_pool.h"
#include "server/model/model_profile.h"

namespace ballast {

// A planned sample and the memory of its payload.
struct SampleRequest {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  v1::Split split = v1::SPLIT_TRAIN;  // whose order record.position is in
  uint64_t step = 0;                  // of the split
  SampleRecord record = {};
  // The grids of all crops of the sample; set for every module.
  absl::Span<const ImageGrid> grids;
  // For each grid: the length of its image's file if it passes through encoded,
  // else 0. Empty: all images are sent as pixels.
  absl::Span<const uint32_t> encoded_bytes;
  // For each clip of audio of the sample: its rows of features; set for every
  // module.
  absl::Span<const uint32_t> clip_rows;
  // Only for an encoder: the place of each crop, or clip, from the payload's
  // start.
  absl::Span<const ImageRecord> images;
  // record.payload_bytes long, at a multiple of 256; uninitialised.
  absl::Span<uint8_t> payload;

  // Entry `crop` of encoded_bytes.
  uint32_t EncodedBytes(size_t crop) const {
    return encoded_bytes.empty() ? 0 : encoded_bytes[crop];
  }
};

enum class SampleOutcome { kBuilt, kPlaceholder };

// Fills the payload of one sample: the interface between blocks and their
// content. Thread-safe: many samples are built at once.
class SampleBuilder {
 public:
  virtual ~SampleBuilder() = default;

  // Writes every byte of the payload (padding is zero), so that equal requests
  // give equal bytes on every server. Blocks on the disk. Errors: UNAVAILABLE
  // (a transient fault; the sample may be built later or elsewhere), DATA_LOSS
  // (a data fault, and no placeholder may replace the sample; the index has
  // changed since it was opened).
  virtual absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const = 0;
};

// A block's position in its role's stream.
struct BlockId {
  uint64_t step = 0;
  uint32_t micro_batch = 0;

  auto operator<=>(const BlockId&) const = default;
};

// A block's place in the arena (proto/block/block_layout.h).
struct ArenaPlace {
  uint64_t offset = 0;  // of its first byte
  uint64_t generation = 0;
};

// One stream's hold on a block in memory; other streams may hold the same
// block. The destructor releases the hold, on any thread: it takes a lock for a
// moment, may begin the next block, and runs no callback. Thread-compatible.
class Block {
 public:
  struct Content {
    BlockId id;
    // The whole block (docs/block.md), from a multiple of 256. Constant while
    // the hold lasts.
    absl::Span<const uint8_t> bytes;
    // Returns the block's XXH3-64. The first call may read the whole block.
    std::function<uint64_t()> checksum;
    // Absent if the block may not be lent to a client in place.
    std::optional<ArenaPlace> place;
  };

  // `on_lend` runs at most once, `on_release` exactly once; the memory is kept
  // until then.
  Block(const Content& content, std::function<void()> on_lend,
        std::function<void()> on_release)
      : content_(content),
        on_lend_(std::move(on_lend)),
        on_release_(std::move(on_release)) {}
  ~Block() {
    if (on_release_) on_release_();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const BlockId& id() const { return content_.id; }
  absl::Span<const uint8_t> bytes() const { return content_.bytes; }
  // XXH3-64. The first call may read the whole block, which blocks in shared
  // memory do not need.
  uint64_t checksum() const { return content_.checksum(); }
  const std::optional<ArenaPlace>& place() const { return content_.place; }

  // Lends the block, which must have a place, to the client until the hold
  // ends. Meanwhile the stream makes its next block.
  void Lend() {
    if (on_lend_) std::exchange(on_lend_, nullptr)();
  }

 private:
  const Content content_;
  std::function<void()> on_lend_;
  const std::function<void()> on_release_;
};

// A block whose size is known but that is not in memory yet.
struct PlannedBlock {
  BlockPlan plan;
  // The grids of all samples' crops, in the plan's order, for every module.
  // Sample i has the grids [first_grid[i], first_grid[i+1]).
  std::vector<ImageGrid> grids;
  std::vector<uint32_t> first_grid;
  // For each grid: the length of the image's file if it passes through encoded,
  // else 0.
  std::vector<uint32_t> encoded_bytes;
  // Likewise, the rows of all samples' clips of audio.
  std::vector<uint32_t> clip_rows;
  std::vector<uint32_t> first_clip;
};

// PlanBlock, plus the grids that building needs. Errors: as PlanBlock.
absl::StatusOr<PlannedBlock> PlanForBuilding(const v1::StepSchedule& schedule,
                                             uint32_t micro_batch,
                                             const v1::Role& role,
                                             const DeliveryRule& delivery,
                                             const BlockGeometry& geometry);

// The request that the builder gets for sample `item` of the plan, whose
// payload is `payload`, record.payload_bytes long. Points into `planned`.
SampleRequest GetRequest(const PlannedBlock& planned, uint32_t item,
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

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_H_
