#ifndef BALLAST_CLIENT_BLOCK_ASSEMBLER_H_
#define BALLAST_CLIENT_BLOCK_ASSEMBLER_H_

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "client/buffer_pool.h"
#include "proto/loader_service.pb.h"

namespace ballast {

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
  absl::Status Note(const FetchedBlock& block) {
    if (!status_.ok()) return status_;
    const std::pair<uint64_t, uint32_t> id(block.step(), block.micro_batch());
    count_ = last_ == id ? count_ + 1 : 1;
    last_ = id;
    if (count_ == kMaxFetches) status_ = CheckIntact(block);
    return status_;
  }

  const absl::Status& status() const { return status_; }

 private:
  std::optional<std::pair<uint64_t, uint32_t>> last_;
  int count_ = 0;
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BLOCK_ASSEMBLER_H_
