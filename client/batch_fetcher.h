#ifndef BALLAST_CLIENT_BATCH_FETCHER_H_
#define BALLAST_CLIENT_BATCH_FETCHER_H_

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/buffer_pool.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule/spread.h"

namespace ballast {

// One block in host memory, and its share of the allowance. Destroying it
// releases both.
class FetchedBlock {
 public:
  virtual ~FetchedBlock() = default;
  virtual uint64_t step() const = 0;
  virtual uint32_t micro_batch() const = 0;
  // The whole block (docs/block.md), read-only; begins at a multiple of 256.
  // Unchanged while its connection lives. A server that has given the
  // connection up (for example because the client was stopped for long) may
  // overwrite a block in its shared memory: see intact().
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether everything read from bytes() so far belonged to this block. Call it
  // after the reads have ended (for a copy to a device: after the copy is done)
  // and before the result is trusted, including any error in its format. False:
  // discard the result and fetch the block again. Never blocks. Always true for
  // blocks in the client's own memory. From any thread.
  virtual bool intact() const { return true; }

  // Whether intact() may ever be false. Copy the bytes of such a block before
  // they go anywhere else, for example to another rank, and check intact()
  // after the copy.
  virtual bool may_be_overwritten() const { return false; }

  // The memory that holds bytes() and other blocks; null if the block has its
  // own memory.
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

// The start of a stream of blocks, and the bounds on what may be held.
struct FetchRequest {
  v1::Role role;
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint64_t steps = 0;  // 0: no end
  std::string fingerprint;
  // Bytes of blocks that may be outstanding: in flight, or fetched and not yet
  // destroyed. One block of any size is always allowed.
  uint64_t max_bytes = uint64_t{256} << 20;
  // The account in which the fetcher counts its blocks, bounded by `max_bytes`.
  // A BatchStream shares one among all its fetchers. Null: the fetcher creates
  // its own.
  std::shared_ptr<HeldBytes> held;
  // Limit of bytes of one block, far above any rank's shard of a micro-batch. A
  // server that announces more is at fault; no memory is allocated for it.
  uint64_t max_block_bytes = uint64_t{16} << 30;
  // Whether blocks may be in the server's shared memory, if it can be mapped;
  // otherwise they come over the stream.
  bool accept_shared_memory = true;
  // Whether Fetch verifies the checksum of blocks in shared memory, at the cost
  // of reading them once. Blocks that come over the stream are always verified.
  bool verify_shared_memory = false;
  // The blocks that are wanted; nullopt: all.
  std::optional<BlockShare> share;
};

// The seam between a rank and the origin of its blocks: a gRPC stream, shared
// memory, a fake. One fetcher is one attempt; an error ends it.
class BatchFetcher {
 public:
  virtual ~BatchFetcher() = default;

  // Returns the next block in order of (step, micro-batch). Blocks until it is
  // complete and, if it came over the stream, its checksum has been verified.
  // Must be called from one thread. Errors: OUT_OF_RANGE (after `steps` steps;
  // again at every further call), UNAVAILABLE (the server went away; another
  // may continue), CANCELLED, DATA_LOSS (checksum), INTERNAL (the server broke
  // the protocol), RESOURCE_EXHAUSTED (no memory for the block), and the errors
  // of the server's Pull.
  virtual absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() = 0;

  // Ends a blocked Fetch, and every later one, with CANCELLED. From any thread.
  virtual void Cancel() = 0;

  // Bytes received so far of the block that Fetch waits for. A sign of life,
  // not exact; 0 if unknown. From any thread.
  virtual uint64_t bytes_received() const { return 0; }

  // Whether Fetch waits for the client itself and not for the server. From any
  // thread.
  virtual bool waits_for_client() const { return false; }
};

// A complete block with a verified checksum.
struct AssembledBlock {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint64_t bytes = 0;
  BufferPool::Buffer buffer;  // from the pool
};

// Assembles the blocks of a Pull from their chunks, one after the other, and
// checks that the messages follow the protocol. Safe with untrusted messages:
// allocates memory only for a block within the limits. Thread-compatible. Must
// not be used after an error.
class BlockAssembler {
 public:
  // `pool` outlives it.
  BlockAssembler(uint64_t max_block_bytes, BufferPool* pool);
  ~BlockAssembler();
  BlockAssembler(const BlockAssembler&) = delete;
  BlockAssembler& operator=(const BlockAssembler&) = delete;

  // Begins a block. `allowance`: the largest block that may begin. Errors:
  // INTERNAL (naming what is wrong with the message), RESOURCE_EXHAUSTED (no
  // memory).
  absl::Status Begin(const v1::PullResponse::Begin& begin, uint64_t allowance);
  // Adds a chunk's data, in pieces. Errors: INTERNAL, DATA_LOSS (checksum).
  absl::Status AddChunk(absl::Span<const absl::Span<const uint8_t>> pieces);

  // Whether a block has begun and lacks bytes.
  bool in_block() const { return in_block_; }
  // Whether Take can return a block.
  bool complete() const { return complete_; }
  AssembledBlock Take();

  // The unfinished block, for messages: "step 3 micro-batch 1, byte 5 of 9".
  std::string Describe() const;

 private:
  struct FreeHash {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  const uint64_t max_block_bytes_;
  BufferPool* const pool_;
  // Hashed chunk by chunk, while the bytes are in the CPU's cache.
  const std::unique_ptr<XXH3_state_t, FreeHash> hash_;
  AssembledBlock block_;
  uint64_t checksum_ = 0;
  uint64_t filled_ = 0;
  bool in_block_ = false;
  bool complete_ = false;
};

// Limits how often a block that is overwritten again and again is fetched.
// Thread-compatible.
class OverwriteCount {
 public:
  // Maximum number of fetches of one block.
  static constexpr int kMaxFetches = 8;

  // Call for each block that is not intact. OK: fetch it again. Errors, final:
  // as CheckIntact, if the same block was overwritten kMaxFetches times in a
  // row.
  absl::Status Note(const FetchedBlock& block);

  const absl::Status& status() const { return status_; }

 private:
  std::optional<std::pair<uint64_t, uint32_t>> last_;
  int count_ = 0;
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_FETCHER_H_
