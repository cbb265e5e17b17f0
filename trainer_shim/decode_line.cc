#include "trainer_shim/decode_line.h"

#include <utility>

namespace ballast {

DecodeLine::DecodeLine(Steps* steps)
    : steps_(steps),
      feeder_([this] { Feed(); }),
      completer_([this] { Complete(); }) {}

DecodeLine::~DecodeLine() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  feeder_.join();
  completer_.join();
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
