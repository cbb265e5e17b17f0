// What LoaderCore's workers do: plan blocks, find memory for them and build
// them.
#include <utility>

#include "common/log.h"
#include "common/status_macros.h"
#include "server/delivery/loader_core.h"

namespace ballast {

void LoaderCore::Plan(uint64_t stream_id, const v1::Role& role,
                      const BlockId& block) {
  absl::StatusOr<PlannedBlock> planned = [&]() -> absl::StatusOr<PlannedBlock> {
    BALLAST_ASSIGN_OR_RETURN(
        const std::shared_ptr<const v1::StepSchedule> schedule,
        schedules_.Get(block.step));
    return PlanForBuilding(*schedule, block.micro_batch, role,
                           settings_.delivery[role.module()],
                           settings_.geometry);
  }();
  // No rank can go on from here, and its trainer may be the last to know why.
  if (absl::IsDataLoss(planned.status())) {
    LogError("no schedule of step ", block.step, ": ",
             planned.status().message());
  }

  Later later;
  MutexLock lock(&mutex_);
  Stream* stream = Find(stream_id);
  if (stream == nullptr || !stream->end.ok()) return;
  if (planned.ok()) {
    stream->progress.OnPlanned(planned->plan.bytes(),
                               planned->plan.header.micro_batches);
    stream->planned = *std::move(planned);
    Advance(stream, &later);
    return;
  }
  stream->progress.Stop();
  // OUT_OF_RANGE is the end of a stream; a step that does not exist is not.
  stream->plan_error =
      absl::IsOutOfRange(planned.status())
          ? absl::InvalidArgumentError(planned.status().message())
          : planned.status();
  if (HasNews(*stream)) Notify(stream, &later);
  AdvanceWaiting(&later);
}

void LoaderCore::Build(const std::shared_ptr<Entry>& entry,
                       PlannedBlock planned, uint64_t distance) {
  std::optional<uint64_t> place;
  {
    Later later;
    MutexLock lock(&mutex_);
    if (!ledger_.IsHeld(entry->number)) {
      OnBuilt(entry.get(), false, &later);
      AdvanceWaiting(&later);
      return;
    }
    place = ledger_.PlaceOf(entry->number);
  }
  const absl::Status taken =
      TakeMemory(entry.get(), planned.plan.bytes(), place);
  if (!taken.ok()) {
    OnFinished(entry, taken);
    return;
  }
  auto build = std::make_shared<BlockBuild>(
      std::move(planned), builder_.get(), entry->memory,
      [this,
       weak = std::weak_ptr<Entry>(entry)](absl::StatusOr<uint64_t> checksum) {
        OnFinished(weak, std::move(checksum));
      });
  if (!build->Start()) return;

  Later later;
  MutexLock lock(&mutex_);
  if (!ledger_.IsHeld(entry->number)) {
    OnBuilt(entry.get(), false, &later);
    AdvanceWaiting(&later);
    later.builds.push_back(std::move(build));
    return;
  }
  entry->build = build;
  // Under the lock, so that End either prevents this or finds the run.
  workers_->AddRun(distance, std::move(build));
}

absl::Status LoaderCore::TakeMemory(Entry* entry, uint64_t bytes,
                                    std::optional<uint64_t> place) {
  if (place.has_value()) {
    const absl::Status reserved =
        arena_->EnsureReserved(*place + BlockLedger::Footprint(bytes));
    if (reserved.ok()) {
      entry->offset = *place + kArenaStampBytes;
      entry->memory = {arena_->at(*entry->offset), bytes};
      return absl::OkStatus();
    }
    MutexLock lock(&mutex_);
    if (!std::exchange(arena_is_full_, true)) {
      LogWarning(reserved.message(), "; further blocks go over the stream");
    }
  }
  BALLAST_ASSIGN_OR_RETURN(entry->buffer, AlignedBuffer::Create(bytes));
  entry->memory = entry->buffer.bytes();
  return absl::OkStatus();
}

void LoaderCore::OnFinished(const std::weak_ptr<Entry>& weak,
                            absl::StatusOr<uint64_t> checksum) {
  const std::shared_ptr<Entry> entry = weak.lock();
  if (entry == nullptr) return;
  Later later;
  MutexLock lock(&mutex_);
  later.builds.push_back(std::move(entry->build));
  entry->done = true;
  entry->status = checksum.status();
  if (checksum.ok()) {
    entry->checksum = *checksum;
    if (entry->offset.has_value()) {
      entry->generation = next_generation_++;
      SetStamp(arena_->stamp(*entry->offset), entry->generation);
    }
  }
  OnBuilt(entry.get(), checksum.ok(), &later);
  for (const auto& [id, stream] : streams_) {
    if (stream->queue.empty()) continue;
    if (stream->queue.front().entry == entry) Notify(stream.get(), &later);
    if (checksum.ok()) continue;
    for (const Queued& queued : stream->queue) {
      if (queued.entry == entry) stream->progress.Stop();
    }
  }
  AdvanceWaiting(&later);
}

}  // namespace ballast
