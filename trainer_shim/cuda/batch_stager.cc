#include "trainer_shim/cuda/batch_stager.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/block/block_view.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/role_source.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<StagingTimer>> StagingTimer::Create() {
  std::unique_ptr<StagingTimer> timer(new StagingTimer);
  BALLAST_ASSIGN_OR_RETURN(timer->begun_, Event::CreateTimed());
  for (Event& end : timer->ends_) {
    BALLAST_ASSIGN_OR_RETURN(end, Event::CreateTimed());
  }
  return timer;
}

absl::Status StagingTimer::Begin(uint64_t step, uint32_t micro_batch,
                                 cudaStream_t stream) {
  {
    MutexLock lock(&mutex_);
    ended_ = false;
    batch_ = {};
    batch_.step = step;
    batch_.micro_batch = micro_batch;
  }
  std::fill(std::begin(has_), std::end(has_), false);
  return begun_.Record(stream);
}

absl::Status StagingTimer::End(Phase phase, cudaStream_t stream) {
  BALLAST_RETURN_IF_ERROR(ends_[phase].Record(stream));
  has_[phase] = true;
  if (phase != kPack) return absl::OkStatus();
  MutexLock lock(&mutex_);
  ended_ = true;
  return absl::OkStatus();
}

std::optional<BatchTimes> StagingTimer::Take() {
  MutexLock lock(&mutex_);
  if (!ended_) return std::nullopt;
  const absl::StatusOr<bool> done = ends_[kPack].Done();
  if (!done.ok() || !*done) return std::nullopt;
  ended_ = false;
  const Event* before = &begun_;
  std::optional<absl::Duration>* const times[kPhases] = {
      &batch_.copy, &batch_.exchange, &batch_.decode, &batch_.pack};
  for (int phase = 0; phase < kPhases; ++phase) {
    if (!has_[phase]) continue;
    const absl::StatusOr<absl::Duration> taken =
        TimeBetween(*before, ends_[phase]);
    if (!taken.ok()) return std::nullopt;
    *times[phase] = *taken;
    before = &ends_[phase];
  }
  return batch_;
}

namespace {

// Whether the block is as planned. An overwritten block may look damaged in any
// way, so the overwrite is the error if both are true. Errors: as CheckIntact,
// BlockView::Parse and Matches.
absl::Status CheckBlock(const FetchedBlock& block, const BlockPlan& plan) {
  const absl::StatusOr<BlockView> view = BlockView::Parse(block.bytes());
  const absl::Status found = view.ok() ? view->Matches(plan) : view.status();
  if (!found.ok()) BALLAST_RETURN_IF_ERROR(CheckIntact(block));
  return found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchStager>> BatchStager::Create(
    RoleSource* source, RegionPins* regions, const Options& options) {
  std::unique_ptr<BatchStager> stager(
      new BatchStager(source, regions, options));
  for (int i = 0; i < options.batches; ++i) {
    auto staged = std::make_unique<StagedBatch>();
    BALLAST_ASSIGN_OR_RETURN(staged->read, Event::Create());
    BALLAST_ASSIGN_OR_RETURN(staged->arrived, Event::Create());
    BALLAST_ASSIGN_OR_RETURN(staged->timer, StagingTimer::Create());
    BALLAST_ASSIGN_OR_RETURN(staged->host,
                             PinnedBuffer::Create(options.batch_bytes));
    stager->queue_.Add(staged.get());
    stager->batches_.push_back(std::move(staged));
  }
  BALLAST_ASSIGN_OR_RETURN(
      stager->thread_,
      StartThread("stage batches", [raw = stager.get()] { raw->Run(); }));
  return stager;
}

BatchStager::~BatchStager() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<StagedBatch*> BatchStager::Next() {
  BALLAST_ASSIGN_OR_RETURN(StagedBlock * next, queue_.Next());
  return static_cast<StagedBatch*>(next);
}

void BatchStager::NoteTimes() {
  for (const auto& staged : batches_) {
    const std::optional<BatchTimes> times = staged->timer->Take();
    if (times.has_value()) source_->NoteTimes(*times);
  }
}

void BatchStager::Cancel() {
  source_->Cancel();
  queue_.Cancel();
}

absl::Status BatchStager::CheckRest() {
  BALLAST_RETURN_IF_ERROR(queue_.DropRest());
  NoteTimes();
  return absl::OkStatus();
}

void BatchStager::Run() {
  absl::Status status = UseDevice(options_.device);
  while (status.ok()) status = StageNext();
  queue_.End(status);
}

absl::Status BatchStager::StageNext() {
  BALLAST_ASSIGN_OR_RETURN(StagedBlock * free, queue_.TakeFree());
  NoteTimes();  // first, since its timer will be used for another micro-batch
  auto* staged = static_cast<StagedBatch*>(free);
  const absl::Status filled = Fill(staged);
  if (filled.ok()) {
    queue_.PutReady(staged);
  } else {
    queue_.Return(staged);
  }
  return filled;
}

absl::Status BatchStager::Fill(StagedBatch* staged) {
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(RoleSource::Block next, source_->Next());
    const absl::Status status = FillFrom(&next, staged);
    // Nothing has been sent to peers yet.
    if (status.ok() || next.block == nullptr || next.block->intact()) {
      return status;
    }
    BALLAST_RETURN_IF_ERROR(source_->FetchAgain(std::move(next.block)));
  }
}

absl::Status BatchStager::FillFrom(RoleSource::Block* from,
                                   StagedBatch* staged) {
  RoleSource::Block& next = *from;
  const v1::StepSchedule& schedule = *next.step->schedule;
  const uint32_t micro_batch = next.micro_batch;
  const JobShape& shape = source_->shape();
  const v1::Role& role = source_->role();
  BALLAST_ASSIGN_OR_RETURN(
      staged->exchange,
      PlanExchange(schedule, micro_batch, role, shape.delivery, shape.block));
  if (next.block != nullptr) {
    BALLAST_RETURN_IF_ERROR(CheckBlock(*next.block, staged->exchange.block));
  }
  staged->layout = {};
  if (shape.fields.any()) {
    BALLAST_ASSIGN_OR_RETURN(
        staged->layout,
        LayOutBatch(staged->exchange, schedule.micro_batches(micro_batch), role,
                    shape));
  }
  FillBatchInfo(*next.step, micro_batch, role, shape, options_.pixel_type,
                staged->exchange, staged->layout, source_->has_blocks(),
                &staged->batch);
  staged->batch.memory = {options_.device};
  staged->plan = PlanStaging(staged->exchange, staged->layout, staged->batch);
  return Stage(&next.block, staged);
}

absl::Status BatchStager::Stage(std::unique_ptr<FetchedBlock>* block,
                                StagedBatch* staged) {
  const StagingPlan& plan = staged->plan;
  BALLAST_RETURN_IF_ERROR(
      staged->host.Reserve(plan.landing.received + plan.upload.bytes));
  if (plan.receives_encoded) {
    BALLAST_RETURN_IF_ERROR(
        staged->received.Reserve(staged->exchange.receive_bytes));
  }
  if (*block != nullptr) {
    BALLAST_RETURN_IF_ERROR(StageBlock(block, staged));
  } else {
    staged->block_bytes = nullptr;
  }
  FillUpload(
      plan, staged->exchange, staged->layout, staged->batch,
      staged->host.bytes().subspan(plan.landing.received, plan.upload.bytes));
  return absl::OkStatus();
}

absl::Status BatchStager::StageBlock(std::unique_ptr<FetchedBlock>* block,
                                     StagedBatch* staged) {
  const absl::Span<const uint8_t> bytes = (*block)->bytes();
  const bool may_stay =
      bytes.size() <= options_.max_bytes / (options_.batches + 1);
  if (may_stay && regions_->Pin((*block)->region())) {
    staged->block_bytes = bytes.data();
    staged->block = std::move(*block);
    return absl::OkStatus();
  }
  std::memcpy(staged->host.data(), bytes.data(), bytes.size());
  staged->block_bytes = staged->host.data();
  return CheckIntact(**block);
}

}  // namespace ballast
