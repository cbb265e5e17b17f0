#include "trainer_shim/jpeg_engine_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {

JpegEngineQueue::JpegEngineQueue(
    std::vector<std::unique_ptr<JpegEngine>> engines, size_t of_engine)
    : engines_(std::move(engines)),
      batches_(of_engine * engines_.size()),
      counts_(engines_.size()) {
  for (size_t i = 0; i < engines_.size(); ++i) {
    threads_.emplace_back([this, i] { Run(i); });
  }
}

JpegEngineQueue::~JpegEngineQueue() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<JpegEngineQueue::Ticket> JpegEngineQueue::Begin(
    absl::Span<const EncodedJpeg> images) {
  MutexLock lock(&mutex_);
  for (Batch& batch : batches_) {
    if (batch.stage != Stage::kFree) continue;
    batch.images.assign(images.begin(), images.end());
    batch.ticket = ++tickets_;
    batch.stage = Stage::kQueued;
    changed_.NotifyAll();
    return batch.ticket;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      batches_.size(), " batches of JPEGs are begun, the most for ",
      engines_.size(), " engines; wait for one first"));
}

absl::Status JpegEngineQueue::Wait(Ticket ticket) {
  MutexLock lock(&mutex_);
  for (Batch& batch : batches_) {
    if (batch.stage == Stage::kFree || batch.ticket != ticket) continue;
    while (batch.stage != Stage::kDone) changed_.Wait(&mutex_);
    batch.stage = Stage::kFree;
    return std::exchange(batch.status, absl::OkStatus());
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no batch of JPEGs with ticket ", ticket,
                   " is begun; it may have been waited for before"));
}

JpegEngineCounts JpegEngineQueue::counts() const {
  MutexLock lock(&mutex_);
  JpegEngineCounts all;
  for (const JpegEngineCounts& one : counts_) {
    all.by_hardware += one.by_hardware;
    all.by_host += one.by_host;
    all.bytes += one.bytes;
    all.busy += one.busy;
  }
  return all;
}

JpegEngineQueue::Batch* JpegEngineQueue::Next() {
  Batch* next = nullptr;
  for (Batch& batch : batches_) {
    if (batch.stage == Stage::kQueued &&
        (next == nullptr || batch.ticket < next->ticket)) {
      next = &batch;
    }
  }
  return next;
}

void JpegEngineQueue::Run(size_t engine) {
  while (true) {
    Batch* batch = nullptr;
    absl::Span<const EncodedJpeg> images;
    {
      MutexLock lock(&mutex_);
      while (!ending_ && (batch = Next()) == nullptr) changed_.Wait(&mutex_);
      if (ending_) return;
      batch->stage = Stage::kTaken;
      // Nobody changes the images of a taken batch.
      images = batch->images;
    }
    absl::Status status = engines_[engine]->Decode(images);
    MutexLock lock(&mutex_);
    batch->status = std::move(status);
    batch->stage = Stage::kDone;
    counts_[engine] = engines_[engine]->counts();
    changed_.NotifyAll();
  }
}

}  // namespace ballast
