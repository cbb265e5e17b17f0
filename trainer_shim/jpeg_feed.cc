#include "trainer_shim/jpeg_feed.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/threads.h"

namespace ballast {

JpegEngineQueue::JpegEngineQueue(
    std::vector<std::unique_ptr<JpegEngine>> engines, size_t of_engine)
    : engines_(std::move(engines)),
      batches_(of_engine * engines_.size()),
      counts_(engines_.size()) {
  started_ = AddThreads(
      "decode JPEGs", engines_.size(), [this](size_t i) { Run(i); }, &threads_);
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
  // One engine with a thread decodes all.
  if (threads_.empty()) return started_;
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
      // No other thread changes the images of a taken batch.
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

JpegChunks::JpegChunks(std::vector<std::unique_ptr<JpegEngine>> engines,
                       OnDecoded on_decoded, size_t of_engine)
    : on_decoded_(std::move(on_decoded)),
      slots_(engines.size() * of_engine),
      tickets_(slots_),
      queue_(std::move(engines), of_engine) {}

absl::StatusOr<size_t> JpegChunks::Reserve() {
  while (true) {
    uint64_t oldest = 0;
    {
      MutexLock lock(&mutex_);
      BALLAST_RETURN_IF_ERROR(failure_);
      if (begun_ - ended_ < slots_) return begun_ % slots_;
      oldest = begun_ - slots_ + 1;
    }
    BALLAST_RETURN_IF_ERROR(EndOne(oldest));
  }
}

absl::Status JpegChunks::Begin(absl::Span<const EncodedJpeg> images) {
  const absl::StatusOr<JpegEngineQueue::Ticket> ticket = queue_.Begin(images);
  if (!ticket.ok()) return Fail(ticket.status());
  absl::Status failure;
  {
    MutexLock lock(&mutex_);
    tickets_[begun_ % slots_] = *ticket;
    ++begun_;
    failure = failure_;
  }
  // The other thread failed meanwhile and did not wait for this chunk.
  return failure.ok() ? failure : Fail(failure);
}

uint64_t JpegChunks::begun() const {
  MutexLock lock(&mutex_);
  return begun_;
}

absl::Status JpegChunks::Finish(uint64_t chunks) {
  while (true) {
    {
      MutexLock lock(&mutex_);
      BALLAST_RETURN_IF_ERROR(failure_);
      if (ended_ >= chunks) return absl::OkStatus();
    }
    BALLAST_RETURN_IF_ERROR(EndOne(chunks));
  }
}

absl::Status JpegChunks::EndOne(uint64_t chunks) {
  MutexLock end(&end_mutex_);
  size_t slot = 0;
  JpegEngineQueue::Ticket ticket = 0;
  {
    MutexLock lock(&mutex_);
    BALLAST_RETURN_IF_ERROR(failure_);
    if (ended_ >= chunks || ended_ == begun_) return absl::OkStatus();
    slot = ended_ % slots_;
    ticket = tickets_[slot];
  }
  absl::Status status = queue_.Wait(ticket);
  if (status.ok()) status = on_decoded_(slot);
  if (!status.ok()) return FailLocked(status);
  MutexLock lock(&mutex_);
  ++ended_;
  return absl::OkStatus();
}

absl::Status JpegChunks::Fail(const absl::Status& status) {
  MutexLock end(&end_mutex_);
  return FailLocked(status);
}

absl::Status JpegChunks::FailLocked(const absl::Status& status) {
  while (true) {
    JpegEngineQueue::Ticket ticket = 0;
    {
      MutexLock lock(&mutex_);
      failure_.Update(status);
      if (ended_ == begun_) return failure_;
      ticket = tickets_[ended_++ % slots_];
    }
    // Reports a ticket that was waited for before, which loses nothing.
    queue_.Wait(ticket).IgnoreError();
  }
}

}  // namespace ballast
