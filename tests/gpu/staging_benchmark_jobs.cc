#include "tests/gpu/staging_benchmark_jobs.h"

#include <chrono>
#include <cmath>
#include <random>

#include "proto/block/block_view.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/batch_stager.h"

namespace ballast {
namespace {

// Receipts are tall and have 0.4 to 1 megapixel; lognormal sizes have long
// tails on both sides of 0.4.
ImageSize Draw(Sizes sizes, std::mt19937* random) {
  const bool receipts = sizes == Sizes::kReceipts;
  const double pixels =
      receipts
          ? 4e5 + 6e5 * std::uniform_real_distribution<double>()(*random)
          : 4e5 * std::exp(0.8 * std::normal_distribution<double>()(*random));
  const double width =
      std::max(28.0, std::sqrt(pixels * (receipts ? 0.4 : 1.3)));
  return {static_cast<uint32_t>(width), static_cast<uint32_t>(pixels / width)};
}

std::vector<FakeSourceIndex::Sample> Samples(Sizes sizes, uint32_t images) {
  std::mt19937 random(17);
  std::vector<FakeSourceIndex::Sample> samples(1 << 14);
  for (FakeSourceIndex::Sample& sample : samples) {
    sample.text_tokens = 100;
    sample.label_tokens = 50;
    for (uint32_t i = 0; i < images; ++i) {
      sample.images.push_back(Draw(sizes, &random));
    }
  }
  return samples;
}

v1::Role RoleOf(uint32_t rank) {
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  role.set_dp_rank(rank);
  return role;
}

double Microseconds() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

BenchmarkJob MakeBenchmarkJob(Sizes sizes, uint32_t images, uint32_t dp,
                              uint32_t steps) {
  const FakeSourceIndex index(Samples(sizes, images));
  v1::Config config = JobConfig(dp, 0, 8 * dp, 8 * dp);
  config.mutable_model()->set_max_pixels(1003520);
  const auto scheduler = OrDie(Scheduler::Create(config, {&index}));
  BenchmarkJob job;
  job.shape = OrDie(GetShape(scheduler->job(), RoleOf(0)));
  for (uint32_t step = 0; step < steps; ++step) {
    job.schedules.push_back(OrDie(scheduler->Schedule(step)));
  }
  return job;
}

std::unique_ptr<StagedBatch> MakeBenchmarkBatch(const BenchmarkJob& job,
                                                uint32_t step, uint32_t rank,
                                                int device, double* planning) {
  const v1::StepSchedule& schedule = job.schedules[step];
  const v1::Role role = RoleOf(rank);
  auto staged = std::make_unique<StagedBatch>();
  const double begin = Microseconds();
  staged->exchange = OrDie(
      PlanExchange(schedule, 0, role, job.shape.delivery, job.shape.block));
  staged->layout = OrDie(LayOutBatch(
      staged->exchange, schedule.micro_batches(0), role, job.shape));
  FillBatchInfo(GetStepInfo(schedule, job.shape.padding), 0, role, job.shape,
                PixelType::kBfloat16, staged->exchange, staged->layout,
                /*has_block=*/true, &staged->batch);
  staged->plan = PlanStaging(staged->exchange, staged->layout, staged->batch);
  *planning = Microseconds() - begin;

  const StagingPlan& plan = staged->plan;
  staged->host =
      OrDie(PinnedBuffer::Create(plan.landing.received + plan.upload.bytes));
  staged->read = OrDie(Event::Create());
  staged->timer = OrDie(StagingTimer::Create());
  staged->batch.memory = {device};
  std::minstd_rand random(step * 1000 + rank);
  const uint64_t block = staged->exchange.block.bytes();
  staged->block_bytes = staged->host.data();
  for (uint64_t i = 0; i < block; i += 4) {
    const uint32_t word = random();
    std::copy_n(reinterpret_cast<const uint8_t*>(&word),
                std::min<uint64_t>(4, block - i), staged->host.data() + i);
  }
  WriteBlockTables(staged->exchange.block, staged->host.bytes().first(block));
  const double fill = Microseconds();
  FillUpload(
      plan, staged->exchange, staged->layout, staged->batch,
      staged->host.bytes().subspan(plan.landing.received, plan.upload.bytes));
  *planning += Microseconds() - fill;
  return staged;
}

}  // namespace ballast
