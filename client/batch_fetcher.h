#ifndef BALLAST_CLIENT_BATCH_FETCHER_H_
#define BALLAST_CLIENT_BATCH_FETCHER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/held_bytes.h"
#include "client/memory_region.h"
#include "proto/job.pb.h"

namespace ballast {

// One block in host memory, and the allowance that it takes up. Destroying it
// releases both.
class FetchedBlock {
 public:
  virtual ~FetchedBlock() = default;
  virtual uint64_t step() const = 0;
  virtual uint32_t micro_batch() const = 0;
  // The whole block (docs/block.md), read-only; begins at a multiple of 256.
  // Unchanged while the connection that it came by lives. A server that has
  // given the connection up (because the client was stopped for long, say) may
  // overwrite a block in its shared memory: see intact().
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether all that has been read of bytes() until now was the block. Ask once
  // reading has ended (a copy to a device: is done) and before trusting what
  // was read, an error in its format included; false: throw the result away and
  // fetch the block again. Never blocks; always true of blocks in the client's
  // own memory. From any thread.
  virtual bool intact() const { return true; }

  // The memory that holds bytes() and other blocks; null where the block has
  // memory of its own.
  virtual std::shared_ptr<const MemoryRegion> region() const { return nullptr; }
};

// OK, or UNAVAILABLE naming the block that is not intact.
inline absl::Status CheckIntact(const FetchedBlock& block) {
  if (block.intact()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "step ", block.step(), " micro-batch ", block.micro_batch(),
      " was overwritten in shared memory while it was read: the server had "
      "given up the connection (was this process stopped for long?); go on "
      "from the last checkpoint"));
}

// The start of a stream of blocks, and how much of it may be held.
struct FetchRequest {
  v1::Role role;
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint64_t steps = 0;  // 0: no end
  std::string fingerprint;
  // Bytes of blocks that may be outstanding: fetched or on their way, and not
  // yet destroyed. One block of any size always may.
  uint64_t max_bytes = uint64_t{256} << 20;
  // The account that the fetcher counts its blocks in, with the bound
  // `max_bytes`; null: an account of its own. A BatchStream gives all its
  // fetchers one.
  std::shared_ptr<HeldBytes> held;
  // Most bytes of one block, far above any rank's shard of a micro-batch. A
  // server that announces more is at fault, and no memory is taken for it.
  uint64_t max_block_bytes = uint64_t{16} << 30;
  // Whether blocks may lie in the server's shared memory where that can be
  // mapped; otherwise they come over the stream.
  bool accept_shared_memory = true;
  // Whether Fetch verifies the checksum of blocks in shared memory, at the cost
  // of reading them once. Blocks that come over the stream are always verified.
  bool verify_shared_memory = false;
};

// The seam between a rank and the origin of its blocks: a gRPC stream, shared
// memory, a fake. One fetcher is one attempt; an error ends it.
class BatchFetcher {
 public:
  virtual ~BatchFetcher() = default;

  // The next block in order of (step, micro-batch). Blocks until it is complete
  // and its checksum, where it came over the stream, has been verified. Called
  // from one thread. Errors: OUT_OF_RANGE (after `steps` steps; again at every
  // further call), UNAVAILABLE (the server went away; another may go on),
  // CANCELLED, DATA_LOSS (checksum), INTERNAL (the server broke the protocol),
  // RESOURCE_EXHAUSTED (no memory for the block), and what the server's Pull
  // answers.
  virtual absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() = 0;

  // Ends a Fetch that is blocking, and every later one, with CANCELLED. From
  // any thread.
  virtual void Cancel() = 0;

  // Bytes received so far of the block that Fetch waits for: a sign of life,
  // not exact; 0 where unknown. From any thread.
  virtual uint64_t bytes_received() const { return 0; }
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_FETCHER_H_
