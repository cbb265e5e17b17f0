#ifndef BALLAST_TRAINER_SHIM_JPEG_ENGINE_QUEUE_H_
#define BALLAST_TRAINER_SHIM_JPEG_ENGINE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Runs JPEG engines on threads of their own, so that nobody waits for the
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
  // Waits for the batches that engines are decoding; those not yet taken are
  // dropped. Nobody may be in Wait.
  ~JpegEngineQueue();
  JpegEngineQueue(const JpegEngineQueue&) = delete;
  JpegEngineQueue& operator=(const JpegEngineQueue&) = delete;

  using Ticket = uint64_t;

  // Queues a batch; engines take batches in order. Never blocks. What the
  // images refer to must stay valid until Wait returns. Errors:
  // RESOURCE_EXHAUSTED (as many batches as may be are begun).
  absl::StatusOr<Ticket> Begin(absl::Span<const EncodedJpeg> images);

  // Blocks until the batch is decoded, and answers its status: as
  // JpegEngine::Decode. Each ticket is waited for once; else
  // FAILED_PRECONDITION.
  absl::Status Wait(Ticket ticket);

  // Of all engines together, as of their last finished batches.
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
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_JPEG_ENGINE_QUEUE_H_
