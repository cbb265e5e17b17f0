#include "trainer_shim/decode_line.h"

#include <utility>

#include "common/status_macros.h"
#include "common/threads.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<DecodeLine>> DecodeLine::Create(Steps* steps) {
  std::unique_ptr<DecodeLine> line(new DecodeLine(steps));
  BALLAST_RETURN_IF_ERROR(AddThreads(
      "decode images of batches", 2,
      [raw = line.get()](size_t i) { i == 0 ? raw->Feed() : raw->Complete(); },
      &line->threads_));
  return line;
}

DecodeLine::~DecodeLine() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

size_t DecodeLine::next() const {
  MutexLock lock(&mutex_);
  return begun_ % kBatches;
}

void DecodeLine::Begin() {
  MutexLock lock(&mutex_);
  ++begun_;
  changed_.NotifyAll();
}

absl::Status DecodeLine::Finish() {
  MutexLock lock(&mutex_);
  if (finished_ == begun_) return absl::OkStatus();
  while (completed_ == finished_) changed_.Wait(&mutex_);
  return std::exchange(statuses_[finished_++ % kBatches], absl::OkStatus());
}

void DecodeLine::Feed() {
  const absl::Status prepared = steps_->Prepare();
  for (uint64_t batch = 0;; ++batch) {
    {
      MutexLock lock(&mutex_);
      while (begun_ == batch && !ending_) changed_.Wait(&mutex_);
      if (begun_ == batch) return;
    }
    absl::Status status =
        prepared.ok() ? steps_->Feed(batch % kBatches) : prepared;
    MutexLock lock(&mutex_);
    statuses_[batch % kBatches] = std::move(status);
    ++fed_;
    changed_.NotifyAll();
  }
}

void DecodeLine::Complete() {
  const absl::Status prepared = steps_->Prepare();
  for (uint64_t batch = 0;; ++batch) {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      // Every batch that is begun will be fed.
      while (fed_ == batch && !(ending_ && begun_ == batch)) {
        changed_.Wait(&mutex_);
      }
      if (fed_ == batch) return;
      status = statuses_[batch % kBatches];
    }
    if (status.ok()) status = prepared;
    if (status.ok()) status = steps_->Complete(batch % kBatches);
    MutexLock lock(&mutex_);
    statuses_[batch % kBatches] = std::move(status);
    ++completed_;
    changed_.NotifyAll();
  }
}

}  // namespace ballast
