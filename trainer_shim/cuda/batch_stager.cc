#include "trainer_shim/cuda/batch_stager.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/block/block_view.h"
#include "proto/schedule/module.h"
#include "trainer_shim/batch_times.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/totals.h"

namespace ballast {
namespace {

constexpr uint64_t kPlaceholders = 4096;  // samples, to begin with

}  // namespace

absl::StatusOr<std::unique_ptr<BatchStager>> BatchStager::Create(
    RoleSource* source, PinnedRegions* regions, const Options& options) {
  std::unique_ptr<BatchStager> feed(new BatchStager(source, regions, options));
  {
    MutexLock lock(&feed->mutex_);
    for (int i = 0; i < options.windows; ++i) {
      auto window = std::make_unique<StagedBatch>();
      BALLAST_ASSIGN_OR_RETURN(window->packed, Event::Create());
      BALLAST_ASSIGN_OR_RETURN(window->timer, StagingTimer::Create());
      BALLAST_ASSIGN_OR_RETURN(window->host,
                               PinnedBuffer::Create(options.window_bytes));
      BALLAST_ASSIGN_OR_RETURN(window->placeholders,
                               PinnedBuffer::Create(kPlaceholders));
      feed->free_.push_back(window.get());
      feed->windows_.push_back(std::move(window));
    }
  }
  feed->thread_ = std::thread([raw = feed.get()] { raw->Run(); });
  return feed;
}

BatchStager::~BatchStager() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<StagedBatch*> BatchStager::Next() {
  MutexLock lock(&mutex_);
  while (ready_.empty() && end_.ok() && !cancelled_) changed_.Wait(&mutex_);
  if (cancelled_) return absl::CancelledError("cancelled");
  if (ready_.empty()) return end_;
  StagedBatch* window = ready_.front();
  ready_.pop_front();
  return window;
}

void BatchStager::Return(StagedBatch* window) {
  MutexLock lock(&mutex_);
  free_.push_back(window);
  changed_.NotifyAll();
}

void BatchStager::NoteTimes() {
  for (const auto& window : windows_) {
    const std::optional<BatchTimes> times = window->timer->Take();
    if (times.has_value()) source_->NoteTimes(*times);
  }
}

void BatchStager::Cancel() {
  source_->Cancel();
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

StagedBatch* BatchStager::TakeFree() {
  MutexLock lock(&mutex_);
  while (free_.empty() && !cancelled_) changed_.Wait(&mutex_);
  if (cancelled_) return nullptr;
  StagedBatch* window = free_.front();
  free_.pop_front();
  return window;
}

void BatchStager::Run() {
  absl::Status status =
      CudaStatus(cudaSetDevice(options_.device), "choosing the device");
  while (status.ok()) {
    StagedBatch* window = TakeFree();
    if (window == nullptr) return;
    status = window->packed.Wait();
    NoteTimes();  // before the window is another's
    if (status.ok() && window->block != nullptr) {
      status = CheckIntact(*window->block);
      window->block = nullptr;
    }
    if (status.ok()) status = Fill(window);
    MutexLock lock(&mutex_);
    (status.ok() ? ready_ : free_).push_back(window);
    changed_.NotifyAll();
  }
  MutexLock lock(&mutex_);
  end_ = status;
  changed_.NotifyAll();
}

absl::Status BatchStager::Fill(StagedBatch* window) {
  BALLAST_ASSIGN_OR_RETURN(RoleSource::Block next, source_->Next());
  const v1::StepSchedule& schedule = *next.schedule;
  const uint32_t micro_batch = next.micro_batch;
  const JobShape& shape = source_->shape();
  const v1::Role& role = source_->role();
  BALLAST_ASSIGN_OR_RETURN(
      window->exchange,
      PlanExchange(schedule, micro_batch, role, shape.delivery, shape.block));
  if (next.block != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(const BlockView view,
                             BlockView::Parse(next.block->bytes()));
    BALLAST_RETURN_IF_ERROR(view.Matches(window->exchange.block));
  }
  window->layout = {};
  if (shape.fields.any()) {
    const v1::ModuleSchedule& module =
        *FindModule(schedule.micro_batches(micro_batch), role.module());
    BALLAST_ASSIGN_OR_RETURN(
        window->layout, LayOutBatch(window->exchange, module, role, shape));
  }
  window->plan =
      PlanStaging(window->exchange, window->layout, shape, options_.pixel_type);
  Describe(schedule, micro_batch, window);
  return Stage(std::move(next.block), window);
}

absl::Status BatchStager::Stage(std::unique_ptr<FetchedBlock> block,
                               StagedBatch* window) {
  const StagingPlan& plan = window->plan;
  BALLAST_RETURN_IF_ERROR(
      window->host.Reserve(plan.landing.received + plan.upload.bytes));
  BALLAST_RETURN_IF_ERROR(window->placeholders.Reserve(plan.samples));
  if (block != nullptr) {
    BALLAST_RETURN_IF_ERROR(StageBlock(std::move(block), window));
  } else {
    window->block_bytes = nullptr;
    std::memset(window->placeholders.data(), 0, plan.samples);
  }
  FillUpload(
      plan, window->exchange, window->layout,
      window->host.bytes().subspan(plan.landing.received, plan.upload.bytes));
  return absl::OkStatus();
}

absl::Status BatchStager::StageBlock(std::unique_ptr<FetchedBlock> block,
                                    StagedBatch* window) {
  const absl::Span<const uint8_t> bytes = block->bytes();
  const bool may_stay =
      bytes.size() <= options_.max_bytes / (options_.windows + 1);
  if (may_stay && regions_->Pin(block->region())) {
    window->block_bytes = bytes.data();
    window->block = std::move(block);
    return absl::OkStatus();
  }
  std::memcpy(window->host.data(), bytes.data(), bytes.size());
  window->block_bytes = window->host.data();
  return CheckIntact(*block);
}

void BatchStager::Describe(const v1::StepSchedule& schedule,
                          uint32_t micro_batch, StagedBatch* window) {
  const JobShape& shape = source_->shape();
  if (schedule_ == nullptr || schedule_->step() != schedule.step()) {
    schedule_ = std::make_shared<v1::StepSchedule>(schedule);
    step_totals_ = {};
    for (const v1::MicroBatchSchedule& each : schedule.micro_batches()) {
      step_totals_ += SumTotals(each, shape.totals_align);
    }
  }
  DeviceBatch& batch = window->batch;
  batch = {};
  batch.step = schedule.step();
  batch.micro_batch = micro_batch;
  batch.role = source_->role();
  batch.device = options_.device;
  batch.place = shape.place;
  batch.fields = shape.fields;
  batch.context = shape.context;
  for (const OwnedSample& owned : window->exchange.owned) {
    const SampleRecord& record = owned.expected;
    PackedSample& sample = batch.samples.emplace_back();
    sample.position = record.position;
    sample.source = record.source;
    sample.ordinal = record.ordinal;
    sample.name =
        absl::StrCat(schedule.sources(record.source), ":", record.ordinal);
  }
  batch.position_axes = shape.block.position_axes;
  batch.text = window->layout.text;
  batch.pixel_type = options_.pixel_type;
  batch.patch_values = shape.patch.row();
  batch.vision = window->layout.vision;
  batch.dummy_image = window->layout.dummy_image;
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  batch.totals = SumTotals(columns, shape.totals_align, source_->role());
  batch.micro_batch_totals = SumTotals(columns, shape.totals_align);
  batch.step_totals = step_totals_;
  if (source_->has_blocks()) {
    batch.bytes_read = window->exchange.block.bytes();
    batch.bytes_moved = window->exchange.bytes_sent();
  }
  batch.schedule = schedule_;
}

}  // namespace ballast
