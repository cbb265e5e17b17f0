#ifndef BALLAST_TESTS_SERVER_DELIVERY_LOADER_TESTING_H_
#define BALLAST_TESTS_SERVER_DELIVERY_LOADER_TESTING_H_

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/block/block_view.h"
#include "server/delivery/loader.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_scheduler.h"

namespace ballast {

// A stream whose Next blocks.
class BlockingStream {
 public:
  // Aborts if the stream cannot be opened.
  BlockingStream(Loader* loader, v1::Module module, uint32_t dp_rank,
                 uint64_t step, uint32_t micro_batch, uint64_t steps,
                 v1::Delivery delivery = v1::DELIVERY_UNSPECIFIED,
                 v1::Split split = v1::SPLIT_TRAIN,
                 std::optional<BlockShare> share = {}) {
    v1::Role role;
    role.set_split(split);
    role.set_delivery(delivery);
    role.set_module(module);
    role.set_dp_rank(dp_rank);
    stream_ = *loader->OpenStream(
        role, step, micro_batch, steps,
        [signal = signal_] {
          MutexLock lock(&signal->mutex);
          signal->ready = true;
          signal->changed.NotifyAll();
        },
        std::move(share));
  }

  absl::StatusOr<std::unique_ptr<Block>> Next() {
    while (true) {
      auto next = stream_->TryNext();
      if (next.has_value()) return *std::move(next);
      MutexLock lock(&signal_->mutex);
      while (!signal_->ready) signal_->changed.Wait(&signal_->mutex);
      signal_->ready = false;
    }
  }

  BlockStream* operator->() { return stream_.get(); }

 private:
  struct Signal {
    Mutex mutex;
    CondVar changed;
    bool ready ABSL_GUARDED_BY(mutex) = false;
  };
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::unique_ptr<BlockStream> stream_;
};

inline constexpr uint32_t kGlobal = 16;
inline constexpr uint32_t kMicro = 8;

inline absl::StatusCode GetCode(
    const absl::StatusOr<std::unique_ptr<Block>>& next) {
  return next.status().code();
}

// A loader of a job of two ranks a module, whose samples are fakes.
class LoaderTesting : public ::testing::Test {
 protected:
  LoaderTesting() { Start(JobConfig(2, 2, kGlobal, kMicro)); }

  void Start(const v1::Config& config, uint32_t ranks = 4) {
    loader_.reset();
    config_ = config;
    scheduler_ = *Scheduler::Create(
        config_,
        std::vector<const SourceIndex*>(config_.sources_size(), &index_));
    auto builder = std::make_unique<FakeSampleBuilder>();
    builder_ = builder.get();
    loader_ = *Loader::Create(config_, ranks, scheduler_.get(),
                              std::move(builder), &clock_);
  }

  // Starts the same loader over the schedules of a synthetic job.
  void StartSynthetic(const SyntheticJob& job) {
    loader_.reset();
    config_.mutable_balance()->set_delivery(job.delivery);
    scheduler_ = std::make_unique<SyntheticScheduler>(job);
    auto builder = std::make_unique<FakeSampleBuilder>();
    builder_ = builder.get();
    loader_ = *Loader::Create(config_, 4, scheduler_.get(), std::move(builder),
                              &clock_);
  }

  BlockPlan GetPlan(v1::Module module, uint32_t rank, const BlockId& id,
                    v1::Split split = v1::SPLIT_TRAIN) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    role.set_split(split);
    const Scheduler& scheduler = **scheduler_->OfSplit(split);
    return *PlanBlock(*scheduler.Schedule(id.step), id.micro_batch, role,
                      *GetRule(scheduler_->job(), module),
                      {scheduler_->job().model().patch(), 3});
  }

  // Checks that `block` is the role's, complete, with every sample in its
  // place.
  void Check(const Block& block, v1::Module module, uint32_t rank,
             v1::Split split = v1::SPLIT_TRAIN) {
    const auto view = BlockView::Parse(block.bytes());
    ASSERT_TRUE(view.ok()) << view.status();
    const absl::Status matches =
        view->Matches(GetPlan(module, rank, block.id(), split));
    EXPECT_TRUE(matches.ok()) << matches;
    EXPECT_EQ(block.checksum(),
              XXH3_64bits(block.bytes().data(), block.bytes().size()));
    for (const SampleRecord& sample : view->samples()) {
      const auto payload = view->payload(sample);
      uint64_t right = 0;
      while (right < payload.size() &&
             payload[right] ==
                 FakePayloadByte(module, sample.position, right)) {
        ++right;
      }
      EXPECT_EQ(right, payload.size());
    }
  }

  const FakeSourceIndex index_{FormulaSamples(97)};
  v1::Config config_;
  std::unique_ptr<Scheduler> scheduler_;
  FakeSampleBuilder* builder_ = nullptr;  // the loader's
  ManualClock clock_;
  std::shared_ptr<Loader> loader_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_DELIVERY_LOADER_TESTING_H_
