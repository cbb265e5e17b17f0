#include "trainer_shim/staging_queue.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "common/status_macros.h"

namespace ballast {

void StagingQueue::Add(StagedBlock* batch) {
  all_.push_back(batch);
  MutexLock lock(&mutex_);
  free_.push_back(batch);
}

absl::StatusOr<StagedBlock*> StagingQueue::TakeFree() {
  StagedBlock* batch = nullptr;
  {
    MutexLock lock(&mutex_);
    while (free_.empty() && damage_.ok() && !cancelled_) {
      changed_.Wait(&mutex_);
    }
    if (cancelled_) return absl::CancelledError("cancelled");
    BALLAST_RETURN_IF_ERROR(damage_);
    batch = free_.front();
    free_.pop_front();
  }
  absl::Status status = batch->AwaitRead();
  if (status.ok()) status = Drop(std::move(batch->block));
  if (status.ok()) return batch;
  Return(batch);
  return status;
}

void StagingQueue::PutReady(StagedBlock* batch) {
  MutexLock lock(&mutex_);
  ready_.push_back(batch);
  changed_.NotifyAll();
}

void StagingQueue::End(const absl::Status& why) {
  MutexLock lock(&mutex_);
  end_ = why;
  changed_.NotifyAll();
}

absl::StatusOr<StagedBlock*> StagingQueue::Next() {
  MutexLock lock(&mutex_);
  while (ready_.empty() && end_.ok() && damage_.ok() && !cancelled_) {
    changed_.Wait(&mutex_);
  }
  if (cancelled_) return absl::CancelledError("cancelled");
  if (ready_.empty()) return damage_.ok() ? end_ : damage_;
  StagedBlock* batch = ready_.front();
  ready_.pop_front();
  return batch;
}

void StagingQueue::Return(StagedBlock* batch) {
  MutexLock lock(&mutex_);
  free_.push_back(batch);
  changed_.NotifyAll();
}

absl::Status StagingQueue::DropRest() {
  for (StagedBlock* batch : all_) {
    BALLAST_RETURN_IF_ERROR(batch->AwaitRead());
    std::unique_ptr<FetchedBlock> block;
    {
      MutexLock lock(&mutex_);  // DropRead may run
      block = std::move(batch->block);
    }
    BALLAST_RETURN_IF_ERROR(Drop(std::move(block)));
  }
  MutexLock lock(&mutex_);
  return damage_;
}

void StagingQueue::DropRead() {
  // Destroyed outside the lock, since that may end a connection.
  absl::InlinedVector<std::unique_ptr<FetchedBlock>, 8> read;
  MutexLock lock(&mutex_);
  for (StagedBlock* batch : free_) {
    if (batch->block == nullptr) continue;
    const absl::StatusOr<bool> done = batch->HasBeenRead();
    if (done.ok() && !*done) continue;
    // Noted before the block is gone: DropRest reads it.
    const absl::Status fault =
        done.ok() ? CheckIntact(*batch->block) : done.status();
    if (!fault.ok()) Fail(fault);
    if (done.ok()) read.push_back(std::move(batch->block));
  }
}

void StagingQueue::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

absl::Status StagingQueue::Drop(std::unique_ptr<FetchedBlock> block) {
  if (block == nullptr) return absl::OkStatus();
  const absl::Status intact = CheckIntact(*block);
  if (intact.ok()) return intact;
  MutexLock lock(&mutex_);
  Fail(intact);
  return intact;
}

void StagingQueue::Fail(const absl::Status& why) {
  damage_.Update(why);
  changed_.NotifyAll();
}

}  // namespace ballast
