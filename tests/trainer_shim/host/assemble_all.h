#ifndef BALLAST_TESTS_TRAINER_SHIM_HOST_ASSEMBLE_ALL_H_
#define BALLAST_TESTS_TRAINER_SHIM_HOST_ASSEMBLE_ALL_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/block/block_plan.h"
#include "tests/fakes/formula_block.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/host_batch_maker.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {

inline constexpr uint64_t kStep = 3;

inline uint32_t DpOf(const SyntheticJob& job, v1::Module module) {
  return module == v1::MODULE_VISION  ? job.vision_dp
         : module == v1::MODULE_AUDIO ? job.audio_dp
                                      : job.language_dp;
}

// Changes a rank's block before it is assembled.
using Tamper = std::function<void(const BlockPlan&, uint32_t rank,
                                  absl::Span<uint8_t> block)>;

// Changes the schedule that every rank follows.
using Change = std::function<void(v1::StepSchedule*)>;

// Assembles all micro-batches of kStep on every rank of `module`, each rank in
// its own thread: result[rank][micro-batch]. A rank that fails aborts.
inline std::vector<std::vector<absl::StatusOr<PackedBatch>>> AssembleAll(
    const SyntheticJob& job, v1::Module module,
    PixelType pixel_type = PixelType::kFloat32, const Tamper& tamper = {},
    const Change& change = {}) {
  v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  if (change) change(&schedule);
  const uint32_t dp = DpOf(job, module);
  auto ends = InProcessGroup(dp);
  std::vector<std::vector<absl::StatusOr<PackedBatch>>> results(dp);
  const auto run = [&](uint32_t rank) {
    const v1::Role role = RoleOf(module, rank);
    const JobShape shape = GetShape(SyntheticJobMessage(job), role).value();
    BatchAssembler assembler(role, shape, pixel_type,
                             Normalisation::kTorchvision, ends[rank].get());
    const StepInfo step = GetStepInfo(schedule, shape.padding);
    PackedBatch batch;
    for (uint32_t m = 0; m < job.micro_batches; ++m) {
      const BlockPlan plan =
          PlanBlock(schedule, m, role, shape.delivery, shape.block).value();
      AlignedBuffer block = FormulaBlock(plan, shape.block);
      if (tamper) tamper(plan, rank, block.bytes());
      const absl::Status status =
          assembler.Assemble(step, m, block.bytes(), &batch);
      if (!status.ok()) {
        ends[rank]->Abort(status);
        results[rank].push_back(status);
        return;
      }
      results[rank].push_back(batch);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < dp; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return results;
}

// Rank 1 of the schedule's module `at` owns no media in any micro-batch, and
// adds a dummy.
inline Change RankOneAddsADummy(int at) {
  return [at](v1::StepSchedule* schedule) {
    for (auto& columns : *schedule->mutable_micro_batches()) {
      columns.mutable_modules(at)->add_dummy_rank(1);
    }
  };
}

// Expects that batches, and each sample of them, are the same to the byte in
// every delivery in which samples move, and that some do.
inline void ExpectSameInEveryDelivery(SyntheticJob job, v1::Module module,
                                      PixelType type, const Change& change) {
  std::vector<std::vector<std::string>> digests;
  uint64_t moved = 0;
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID}) {
    job.delivery = delivery;
    std::vector<std::string>& all = digests.emplace_back();
    for (const auto& batches : AssembleAll(job, module, type, {}, change)) {
      for (const auto& batch : batches) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        all.push_back(ComputeDigest(*batch));
        const auto samples = SampleDigests(*batch);
        all.insert(all.end(), samples.begin(), samples.end());
        if (delivery == v1::DELIVERY_EXCHANGE) moved += batch->bytes_moved;
      }
    }
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(digests[0], digests[2]);
  EXPECT_GT(moved, 0);
}

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_HOST_ASSEMBLE_ALL_H_
