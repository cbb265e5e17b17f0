#ifndef BALLAST_TRAINER_SHIM_JPEG_FEED_H_
#define BALLAST_TRAINER_SHIM_JPEG_FEED_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Runs JPEG engines in their own threads, so that callers do not wait for the
// hardware and, with two engines or more, one batch is prepared while another
// is decoded. Thread-safe.
class JpegEngineQueue {
 public:
  // Batches of each engine that may be begun and not yet waited for, unless
  // told otherwise.
  static constexpr size_t kBatchesOfEngine = 2;

  // At least one engine, none null; each gets a thread, and `of_engine` batches
  // may be begun and not yet waited for.
  explicit JpegEngineQueue(std::vector<std::unique_ptr<JpegEngine>> engines,
                           size_t of_engine = kBatchesOfEngine);
  // Waits for the batches that engines are decoding; batches not yet taken are
  // dropped. No thread may be in Wait.
  ~JpegEngineQueue();
  JpegEngineQueue(const JpegEngineQueue&) = delete;
  JpegEngineQueue& operator=(const JpegEngineQueue&) = delete;

  using Ticket = uint64_t;

  // Queues a batch; engines take batches in order. Never blocks. The memory to
  // which the images refer must stay valid until Wait returns. Errors:
  // RESOURCE_EXHAUSTED (the limit of begun batches is reached, or the system
  // gave no thread).
  absl::StatusOr<Ticket> Begin(absl::Span<const EncodedJpeg> images);

  // Blocks until the batch is decoded, and returns its status: as
  // JpegEngine::Decode. Each ticket is waited for once; else
  // FAILED_PRECONDITION.
  absl::Status Wait(Ticket ticket);

  // Sums over all engines, up to their last finished batches.
  JpegEngineCounts counts() const;

 private:
  enum class Stage { kFree, kQueued, kTaken, kDone };
  struct Batch {
    Stage stage = Stage::kFree;
    Ticket ticket = 0;
    std::vector<EncodedJpeg> images;
    absl::Status status;
  };
  void Run(size_t engine);
  // The queued batch with the lowest ticket, or null.
  Batch* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::unique_ptr<JpegEngine>> engines_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Batch> batches_ ABSL_GUARDED_BY(mutex_);
  std::vector<JpegEngineCounts> counts_ ABSL_GUARDED_BY(mutex_);
  Ticket tickets_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
  absl::Status started_;  // why there are fewer threads than engines
};

// The order of chunks of JPEGs on their way through an engine queue: each takes
// a slot of memory, is decoded, and ends, in the order in which chunks were
// begun. One thread may begin chunks while another ends them, so that engines
// have the next batch's chunks while the last one's are completed. Reserve and
// Begin must be called from one thread at a time, and so must Finish.
class JpegChunks {
 public:
  // Called for each decoded chunk, in order, by the thread in Finish or
  // Reserve, one at a time: enqueues the work on the slot's planes.
  using OnDecoded = std::function<absl::Status(size_t slot)>;

  // Engines of `engines` work at the same time, each with `of_engine` slots.
  JpegChunks(std::vector<std::unique_ptr<JpegEngine>> engines,
             OnDecoded on_decoded,
             size_t of_engine = JpegEngineQueue::kBatchesOfEngine);
  // Waits for the engines. No thread may be in a call.
  ~JpegChunks() = default;
  JpegChunks(const JpegChunks&) = delete;
  JpegChunks& operator=(const JpegChunks&) = delete;

  // Chunks that may be begun and not ended.
  size_t slots() const { return slots_; }

  // Returns a slot for the next chunk, whose previous chunk has ended. While
  // all slots are taken, ends older chunks, and so waits for engines. Errors:
  // as Finish.
  absl::StatusOr<size_t> Reserve();

  // Gives the reserved slot's images to the engines; never blocks. They and
  // their memory must stay valid until the chunk has ended, or any call fails.
  // Errors: as Finish.
  absl::Status Begin(absl::Span<const EncodedJpeg> images);

  // The number of chunks begun so far, to pass to Finish. From the thread that
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
  const size_t slots_;
  Mutex end_mutex_;  // held by the thread that ends a chunk
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(end_mutex_);
  // Chunk n uses slot n modulo the slots.
  std::vector<JpegEngineQueue::Ticket> tickets_ ABSL_GUARDED_BY(mutex_);
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  JpegEngineQueue queue_;  // destroyed first: joins its threads
};

// Gathers images into full chunks, also of several batches: JPEG engines decode
// a fixed number of images at a time and take as long for a smaller number. A
// chunk that is not full waits for images of the next batch only while the
// engines have another chunk to decode. `Image` has a member `memory`, the
// bytes that it takes while it is decoded.
//
//   JpegFeed<Image> feed({.images = 7, .memory = most}, &chunks, fill);
//   const uint64_t first = *feed.Begin(images_of_a_batch);
//   const uint64_t second = *feed.Begin(images_of_the_next);
//   feed.Finish(first);
//
// One thread may call Begin while another calls Finish.
template <typename Image>
class JpegFeed {
 public:
  struct Limits {
    size_t images = 1;  // of a chunk
    // Factor by which a chunk may hold more images, in a batch of at least two
    // such chunks and where memory allows it: each call of an engine has a
    // fixed cost.
    size_t together = 1;
    uint64_t memory = 0;  // of a chunk of several images
  };
  // Makes a slot ready for a chunk; returns the engines' inputs, valid until
  // the next call. One call at a time.
  using Fill = std::function<absl::StatusOr<absl::Span<const EncodedJpeg>>(
      size_t slot, absl::Span<const Image> images)>;

  // `chunks`, not owned, outlives the feed; no other caller begins or ends any.
  JpegFeed(const Limits& limits, JpegChunks* chunks, Fill fill)
      : limits_(limits), chunks_(chunks), fill_(std::move(fill)) {}
  JpegFeed(const JpegFeed&) = delete;
  JpegFeed& operator=(const JpegFeed&) = delete;

  // The number of the chunk that has the last image begun so far, from 1.
  using Ticket = uint64_t;

  // Begins a batch's images. Blocks while all slots are taken. Errors: as
  // JpegChunks::Finish and `fill`.
  absl::StatusOr<Ticket> Begin(absl::Span<const Image> images) {
    BALLAST_RETURN_IF_ERROR(chunks_->Finish(0));  // an earlier failure
    Enter();
    const absl::Status status = Add(images);
    const Ticket ticket = chunks_->begun() + (open_.empty() ? 0 : 1);
    Leave();
    BALLAST_RETURN_IF_ERROR(status);
    return ticket;
  }

  // Blocks until the batch and all before it are decoded. Errors: as
  // JpegChunks::Finish and `fill`.
  absl::Status Finish(Ticket ticket) {
    // The engines may still have the chunk before the ticket's.
    if (ticket > 1) BALLAST_RETURN_IF_ERROR(chunks_->Finish(ticket - 2));
    if (EnterUnlessBegun(ticket)) {
      const absl::Status status = BeginChunk();
      Leave();
      BALLAST_RETURN_IF_ERROR(status);
    }
    return chunks_->Finish(ticket);
  }

 private:
  // Between Enter and Leave the open chunk is this thread's. The mutex is not
  // held meanwhile: beginning a chunk may wait for the engines.
  void Enter() {
    MutexLock lock(&mutex_);
    while (entered_) changed_.Wait(&mutex_);
    entered_ = true;
  }
  bool EnterUnlessBegun(Ticket ticket) {
    MutexLock lock(&mutex_);
    while (entered_ && chunks_->begun() < ticket) changed_.Wait(&mutex_);
    if (chunks_->begun() >= ticket) return false;
    entered_ = true;
    return true;
  }
  void Leave() {
    MutexLock lock(&mutex_);
    entered_ = false;
    changed_.NotifyAll();
  }

  absl::Status Add(absl::Span<const Image> images) {
    const size_t large = limits_.images * limits_.together;
    const size_t most = images.size() >= 2 * large ? large : limits_.images;
    for (const Image& image : images) {
      if (!open_.empty() && memory_ + image.memory > limits_.memory) {
        BALLAST_RETURN_IF_ERROR(BeginChunk());
      }
      open_.push_back(image);
      memory_ += image.memory;
      if (IsFull(most)) BALLAST_RETURN_IF_ERROR(BeginChunk());
    }
    return absl::OkStatus();
  }

  // Returns whether the open chunk should be begun. Engines take as long for a
  // few more images as for limits_.images more.
  bool IsFull(size_t most) const {
    if (open_.size() >= most) return true;
    if (open_.size() % limits_.images != 0) return false;
    // Assumes that the next images are as large.
    const uint64_t more = memory_ / open_.size() * limits_.images;
    return memory_ + more > limits_.memory;
  }

  absl::Status BeginChunk() {
    BALLAST_ASSIGN_OR_RETURN(const size_t slot, chunks_->Reserve());
    const absl::StatusOr<absl::Span<const EncodedJpeg>> jpegs =
        fill_(slot, open_);
    open_.clear();
    memory_ = 0;
    BALLAST_RETURN_IF_ERROR(jpegs.ok() ? chunks_->Begin(*jpegs)
                                       : chunks_->Fail(jpegs.status()));
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  const Limits limits_;
  JpegChunks* const chunks_;
  const Fill fill_;
  // Used by the thread that entered: images that are in no chunk yet, fewer
  // than a chunk's.
  std::vector<Image> open_;
  uint64_t memory_ = 0;  // of these
  Mutex mutex_;
  CondVar changed_;
  bool entered_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_JPEG_FEED_H_
