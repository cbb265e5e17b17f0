#include "trainer_shim/jpeg_chunks.h"

#include <utility>

#include "common/status_macros.h"

namespace ballast {

JpegChunks::JpegChunks(std::vector<std::unique_ptr<JpegEngine>> engines,
                       OnDecoded on_decoded, size_t of_engine)
    : on_decoded_(std::move(on_decoded)),
      tickets_(engines.size() * of_engine),
      queue_(std::move(engines), of_engine) {}

absl::StatusOr<size_t> JpegChunks::Reserve() {
  while (true) {
    uint64_t oldest = 0;
    {
      MutexLock lock(&mutex_);
      BALLAST_RETURN_IF_ERROR(failure_);
      if (begun_ - ended_ < tickets_.size()) return begun_ % tickets_.size();
      oldest = begun_ - tickets_.size() + 1;
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
    tickets_[begun_ % tickets_.size()] = *ticket;
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
    slot = ended_ % tickets_.size();
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
      ticket = tickets_[ended_++ % tickets_.size()];
    }
    // Reports a ticket that was waited for before; nothing is lost.
    queue_.Wait(ticket).IgnoreError();
  }
}

}  // namespace ballast
