#ifndef BALLAST_CLIENT_BATCH_FETCHER_H_
#define BALLAST_CLIENT_BATCH_FETCHER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/memory_region.h"
#include "proto/job.pb.h"

namespace ballast {

// One block in host memory, and the allowance that it takes up. Destroying it
// (or its last copy, see BatchStream) lets go of both.
class FetchedBlock {
 public:
  virtual ~FetchedBlock() = default;
  virtual uint64_t step() const = 0;
  virtual uint32_t micro_batch() const = 0;
  // The whole block (docs/block.md); begins at a multiple of 256. To be read
  // only. Stays as it is while the connection that it came by lives; where a
  // server has given that up (a client that was stopped for long, say) and the
  // block lies in its memory, it may be overwritten: see intact().
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether what has been read of bytes() until now was the block. To be asked
  // once reading has ended (a copy to a device: is done); false means that what
  // was made of it is to be thrown away, and the block fetched again. Never
  // blocks; always true of blocks in the client's own memory. From any thread.
  virtual bool intact() const { return true; }

  // What bytes() lies in, with other blocks before and after it; null where it
  // lies alone.
  virtual std::shared_ptr<const MemoryRegion> region() const { return nullptr; }
};

// OK, or UNAVAILABLE naming the block, which is not intact.
inline absl::Status CheckIntact(const FetchedBlock& block) {
  if (block.intact()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "step ", block.step(), " micro-batch ", block.micro_batch(),
      " was overwritten in shared memory while it was read: the server had "
      "given "
      "up the connection (was this process stopped for long?); go on from the "
      "last checkpoint"));
}

// Where a stream of blocks begins and how much of it may be held.
struct FetchRequest {
  v1::Role role;
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint64_t steps = 0;  // 0: no end
  std::string fingerprint;
  // Bytes of blocks that may be outstanding: fetched or on their way, and not
  // yet destroyed. One block may always be, however large.
  uint64_t max_bytes = uint64_t{256} << 20;
  // Bytes of one block. A server that announces more is at fault, and no memory
  // is taken for it. Far above what a rank's shard of a micro-batch comes to.
  uint64_t max_block_bytes = uint64_t{16} << 30;
  // Whether blocks may lie in the server's shared memory, where that can be
  // mapped; else they come over the stream.
  bool accept_shared_memory = true;
  // Whether Fetch takes the checksum of blocks in shared memory, which nothing
  // has carried and which reading them once costs. Blocks that come over the
  // stream are always verified.
  bool verify_shared_memory = false;
};

// The seam between a rank and where its blocks come from: a gRPC stream, shared
// memory, a fake. One fetcher is one attempt; after an error it is done.
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

  // Bytes of the block that Fetch is waiting for which have come so far. A sign
  // of life, so it need not be exact; 0 where that is not known. From any
  // thread.
  virtual uint64_t bytes_received() const { return 0; }
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_FETCHER_H_
