// Tasks of a Loader's workers: plan blocks, find memory for them and build
// them.
#include <utility>

#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/split.h"
#include "server/delivery/loader.h"

namespace ballast {

void Loader::Plan(uint64_t stream_id, const v1::Role& role, const BlockId& id) {
  {
    // The schedule is not computed for a stream that has ended meanwhile.
    MutexLock lock(&mutex_);
    const LoaderStream* stream = Find(stream_id);
    if (stream == nullptr || !stream->end.ok()) return;
  }
  absl::StatusOr<PlannedBlock> planned = [&]() -> absl::StatusOr<PlannedBlock> {
    BALLAST_ASSIGN_OR_RETURN(
        const std::shared_ptr<const v1::StepSchedule> schedule,
        splits_[role.split()]->schedules.Get(id.step));
    return PlanForBuilding(*schedule, id.micro_batch, role,
                           AsksDirect(role) ? DeliveryRule(v1::DELIVERY_DIRECT)
                                            : settings_.delivery[role.module()],
                           settings_.geometry);
  }();
  // Every rank is stuck here, and its trainer may be the last to know why.
  if (absl::IsDataLoss(planned.status())) {
    LogError("no schedule of ", SplitWord(role.split()), "step ", id.step, ": ",
             planned.status().message());
  }

  Deferred deferred;
  MutexLock lock(&mutex_);
  LoaderStream* stream = Find(stream_id);
  if (stream == nullptr || !stream->end.ok()) return;
  if (planned.ok()) {
    stream->progress.OnPlanned(planned->plan.bytes(),
                               planned->plan.header.micro_batches);
    stream->planned = *std::move(planned);
    Advance(stream, &deferred);
    return;
  }
  stream->progress.Stop();
  // OUT_OF_RANGE would mean the normal end of a stream, which a step that does
  // not exist is not.
  stream->plan_error =
      absl::IsOutOfRange(planned.status())
          ? absl::InvalidArgumentError(planned.status().message())
          : planned.status();
  if (HasNews(*stream)) Notify(stream, &deferred);
  AdvanceWaiting(&deferred);
}

void Loader::Build(const std::shared_ptr<LoaderBlock>& block,
                   PlannedBlock planned, uint64_t distance) {
  std::optional<uint64_t> place;
  {
    Deferred deferred;
    MutexLock lock(&mutex_);
    if (!ledger_.IsHeld(block->number)) {
      OnBuilt(block.get(), false, &deferred);
      AdvanceWaiting(&deferred);
      return;
    }
    place = ledger_.PlaceOf(block->number);
  }
  const absl::Status taken =
      TakeMemory(block.get(), planned.plan.bytes(), place);
  if (!taken.ok()) {
    OnFinished(block, taken);
    return;
  }
  auto build = std::make_shared<BlockBuild>(
      std::move(planned), builder_.get(), block->memory, block->wants_checksum,
      [this, weak = std::weak_ptr<LoaderBlock>(block)](
          absl::StatusOr<std::optional<uint64_t>> checksum) {
        OnFinished(weak, std::move(checksum));
      });
  if (!build->Start()) return;

  Deferred deferred;
  MutexLock lock(&mutex_);
  if (!ledger_.IsHeld(block->number)) {
    OnBuilt(block.get(), false, &deferred);
    AdvanceWaiting(&deferred);
    deferred.builds.push_back(std::move(build));
    return;
  }
  block->build = build;
  // Added under the lock, so that End either prevents this or finds the build.
  workers_->AddItems(distance, std::move(build));
}

absl::Status Loader::TakeMemory(LoaderBlock* block, uint64_t bytes,
                                std::optional<uint64_t> place) {
  if (place.has_value()) {
    const absl::Status reserved =
        arena_->EnsureReserved(*place + BlockLedger::Footprint(bytes));
    if (reserved.ok()) {
      block->offset = *place + kArenaStampBytes;
      block->memory = {arena_->at(*block->offset), bytes};
      return absl::OkStatus();
    }
    MutexLock lock(&mutex_);
    if (!std::exchange(full_arena_logged_, true)) {
      LogWarning(reserved.message(), "; further blocks go over the stream");
    }
  }
  BALLAST_ASSIGN_OR_RETURN(block->buffer, AlignedBuffer::Create(bytes));
  block->memory = block->buffer.bytes();
  return absl::OkStatus();
}

void Loader::OnFinished(const std::weak_ptr<LoaderBlock>& weak,
                        absl::StatusOr<std::optional<uint64_t>> checksum) {
  const std::shared_ptr<LoaderBlock> block = weak.lock();
  if (block == nullptr) return;
  Deferred deferred;
  MutexLock lock(&mutex_);
  deferred.builds.push_back(std::move(block->build));
  block->done = true;
  block->status = checksum.status();
  if (checksum.ok()) {
    block->checksum = *checksum;
    if (block->offset.has_value()) {
      block->generation = next_generation_++;
      SetStamp(arena_->stamp(*block->offset), block->generation);
    }
  }
  OnBuilt(block.get(), checksum.ok(), &deferred);
  for (const auto& [id, stream] : streams_) {
    if (stream->queue.empty()) continue;
    if (stream->queue.front().block == block) Notify(stream.get(), &deferred);
    if (checksum.ok()) continue;
    for (const QueuedBlock& queued : stream->queue) {
      if (queued.block == block) stream->progress.Stop();
    }
  }
  AdvanceWaiting(&deferred);
}

}  // namespace ballast
