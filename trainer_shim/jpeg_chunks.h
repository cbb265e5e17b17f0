#ifndef BALLAST_TRAINER_SHIM_JPEG_CHUNKS_H_
#define BALLAST_TRAINER_SHIM_JPEG_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/jpeg_engine_queue.h"

namespace ballast {

// The order of chunks of JPEGs on their way through an engine queue: each takes
// a slot of memory, is decoded, and ends, in the order in which chunks were
// begun. One thread may begin chunks while another ends them, so that engines
// have the next batch's chunks while the last one's are completed. Reserve and
// Begin must be called from one thread at a time, and so must Finish.
class JpegChunks {
 public:
  // Called for each decoded chunk, in order, by the thread in Finish or
  // Reserve, one at a time: enqueues what is to be done with the slot's planes.
  using OnDecoded = std::function<absl::Status(size_t slot)>;

  // Engines of `engines` work at the same time, each with `of_engine` slots.
  JpegChunks(std::vector<std::unique_ptr<JpegEngine>> engines,
             OnDecoded on_decoded,
             size_t of_engine = JpegEngineQueue::kBatchesOfEngine);
  // Waits for the engines. Nobody may be in a call.
  ~JpegChunks() = default;
  JpegChunks(const JpegChunks&) = delete;
  JpegChunks& operator=(const JpegChunks&) = delete;

  // Chunks that may be begun and not ended.
  size_t slots() const { return tickets_.size(); }

  // Returns the slot of the next chunk, whose last chunk has ended. Ends older
  // chunks, and so waits for engines, while all slots are taken. Errors: as
  // Finish.
  absl::StatusOr<size_t> Reserve();

  // Gives the reserved slot's images to the engines; never blocks. They and
  // their memory must stay valid until the chunk has ended, or any call fails.
  // Errors: as Finish.
  absl::Status Begin(absl::Span<const EncodedJpeg> images);

  // The number of chunks begun so far: to be finished. From the thread that
  // begins them.
  uint64_t begun() const;

  // Ends the first `chunks` chunks that were begun; blocks until the engines
  // have decoded them. Errors, final, repeated by every call, and after which
  // no engine works: as JpegEngine::Decode and OnDecoded.
  absl::Status Finish(uint64_t chunks);

  // Ends everything with `status`, which every later call returns; waits for
  // the engines. Returns the first failure.
  absl::Status Fail(const absl::Status& status);

  JpegEngineCounts counts() const { return queue_.counts(); }

 private:
  // Ends the oldest chunk if it is one of the first `chunks`.
  absl::Status EndOne(uint64_t chunks);
  absl::Status FailLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(end_mutex_);

  const OnDecoded on_decoded_;
  Mutex end_mutex_;  // held by the thread that ends a chunk
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(end_mutex_);
  // Chunk n uses slot n modulo the slots.
  std::vector<JpegEngineQueue::Ticket> tickets_ ABSL_GUARDED_BY(mutex_);
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  JpegEngineQueue queue_;  // destroyed first: joins its threads
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_JPEG_CHUNKS_H_
