#ifndef BALLAST_TRAINER_SHIM_STAGING_QUEUE_H_
#define BALLAST_TRAINER_SHIM_STAGING_QUEUE_H_

#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch_fetcher.h"
#include "common/mutex.h"

namespace ballast {

// The block of a staged batch, and the device's progress in reading it. The
// seam to the device: StagedBatch (cuda/batch_stager.h), a fake.
class StagedBlock {
 public:
  virtual ~StagedBlock() = default;
  // Whether the device has done all reading of the block that was enqueued;
  // true if none was. Never blocks. Errors: the device's.
  virtual absl::StatusOr<bool> HasBeenRead() const = 0;
  // Blocks until HasBeenRead. Errors: the device's.
  virtual absl::Status AwaitRead() const = 0;

  // Keeps the server's memory alive; null if the device reads none of it.
  std::unique_ptr<FetchedBlock> block;
};

// The batches of a stager, each in turn: free, being staged, ready, with the
// consumer, and free again while the device still reads its block. A block is
// kept until the device has read it, and no longer: also if no further batch is
// staged, at the end of the steps or while no server answers. A block that was
// overwritten until then (FetchedBlock::intact) ends the batches, after the
// batches that are ready. Thread-safe.
class StagingQueue {
 public:
  // Adds a batch, which is free. Call before anything else. Not owned; outlives
  // the queue.
  void Add(StagedBlock* batch);

  // For the stager's thread. Returns a free batch without a block, once the
  // device has read its previous block. Blocks until then. Errors: CANCELLED;
  // as CheckIntact, of any block that was dropped, and HasBeenRead.
  absl::StatusOr<StagedBlock*> TakeFree();
  // Hands a batch that was taken to the consumer.
  void PutReady(StagedBlock* batch);
  // Ends the queue's input, because of `why`.
  void End(const absl::Status& why);

  // For the consumer's thread. Returns the next ready batch, in order; blocks
  // until there is one. Errors, final: CANCELLED; after the ready batches, as
  // TakeFree or what End was given.
  absl::StatusOr<StagedBlock*> Next();
  // Gives back a batch that was taken from either end. All reading of its block
  // has been enqueued.
  void Return(StagedBlock* batch);
  // Call after End, when every batch has been given back: waits until the
  // device has read the last blocks, and drops them. Errors: as TakeFree,
  // without CANCELLED.
  absl::Status DropRest();

  // Drops the blocks of free batches that the device has read. Blocks neither
  // for the device nor for the other threads' calls. From any thread.
  void DropRead();

  // Ends blocked calls of TakeFree and Next, and all later ones.
  void Cancel();

 private:
  // Drops the block, if there is one, which nobody reads any more. Errors: as
  // CheckIntact, noted.
  absl::Status Drop(std::unique_ptr<FetchedBlock> block);
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::vector<StagedBlock*> all_;  // constant after the last Add
  std::deque<StagedBlock*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<StagedBlock*> ready_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  // The first error of a block that was dropped.
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_STAGING_QUEUE_H_
