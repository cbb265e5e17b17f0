// The device's times for the phases of a micro-batch: measuring and reporting.

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/device_watch.h"
#include "trainer_shim/cuda/in_process_device_communicator.h"
#include "trainer_shim/cuda/staging_kernels.h"
#include "trainer_shim/role_source.h"

namespace ballast {
namespace {

constexpr uint64_t kBytes = uint64_t{32} << 20;
constexpr int kManyTimes = 1000;

absl::Time Now() { return Clock::Real()->Now(); }

double SumOf(const v1::StepTiming& timing) {
  return timing.copy_milliseconds() + timing.exchange_milliseconds() +
         timing.pack_milliseconds();
}

// ---- The timer alone ----

// Blocks work that is enqueued on a stream from now on.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    const auto wait = [](void* gate) {
      auto* self = static_cast<Gate*>(gate);
      Set(&self->reached_);
      self->opened_.wait(false);
    };
    OrDie(cudaLaunchHostFunc(stream, wait, this), "a host function");
  }
  // Waits until the stream has finished all earlier work.
  void AwaitReached() const { reached_.wait(false); }
  void Open() { Set(&opened_); }

 private:
  static void Set(std::atomic<bool>* flag) {
    *flag = true;
    flag->notify_all();
  }
  std::atomic<bool> reached_ = false;
  std::atomic<bool> opened_ = false;
};

class StagingTimerGpuTest : public ::testing::Test {
 protected:
  // Enqueues a micro-batch in which each phase is a copy.
  void Give(uint64_t step, bool exchanges) {
    OrDie(timer_->Begin(step, 3, stream_.get()));
    Copy(host_.data(), cudaMemcpyHostToDevice);
    OrDie(timer_->End(StagingTimer::kCopy, stream_.get()));
    if (exchanges) {
      Copy(other_.data(), cudaMemcpyDeviceToDevice);
      OrDie(timer_->End(StagingTimer::kExchange, stream_.get()));
    }
    EXPECT_FALSE(timer_->Take().has_value()) << "half given";
    Copy(other_.data(), cudaMemcpyDeviceToDevice);
    OrDie(timer_->End(StagingTimer::kPack, stream_.get()));
  }
  void Copy(const uint8_t* from, cudaMemcpyKind kind) {
    OrDie(cudaMemcpyAsync(device_.data(), from, kBytes, kind, stream_.get()),
          "a copy");
  }

  CudaStream stream_ = OrDie(CudaStream::Create());
  std::unique_ptr<StagingTimer> timer_ = OrDie(StagingTimer::Create());
  PinnedBuffer host_ = OrDie(PinnedBuffer::Create(kBytes));
  DeviceBuffer device_ = Filled<uint8_t>(kBytes, 1);
  DeviceBuffer other_ = Filled<uint8_t>(kBytes, 2);
};

TEST_F(StagingTimerGpuTest, TimesDoNotExceedTheWallClock) {
  for (const uint64_t step : {7, 8, 9}) {
    const bool exchanges = step != 8;
    const absl::Time begin = Now();
    Give(step, exchanges);
    OrDie(stream_.Synchronize());
    const absl::Duration wall = Now() - begin;
    const std::optional<BatchTimes> times = timer_->Take();
    ASSERT_TRUE(times.has_value());
    EXPECT_EQ(times->step, step);
    EXPECT_EQ(times->micro_batch, 3u);
    ASSERT_TRUE(times->copy.has_value());
    ASSERT_TRUE(times->pack.has_value());
    ASSERT_EQ(times->exchange.has_value(), exchanges);
    const absl::Duration exchange =
        times->exchange.value_or(absl::ZeroDuration());
    EXPECT_GT(*times->copy, absl::ZeroDuration());
    EXPECT_GT(*times->pack, absl::ZeroDuration());
    if (exchanges) {
      EXPECT_GT(exchange, absl::ZeroDuration());
    }
    EXPECT_LE(*times->copy + exchange + *times->pack, wall);
    EXPECT_FALSE(timer_->Take().has_value()) << "taken twice";
  }
}

// Nothing waits for the device, and the trainer, which checks for its own CUDA
// errors, sees none. Waiting of the stream before the micro-batch does not
// count.
TEST_F(StagingTimerGpuTest, UnfinishedWorkHasNoTimes) {
  EXPECT_FALSE(timer_->Take().has_value());
  Gate gate(stream_.get());
  Give(7, true);
  gate.AwaitReached();
  for (int i = 0; i < kManyTimes; ++i) {
    ASSERT_FALSE(timer_->Take().has_value());
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const absl::Time opened = Now();
  gate.Open();
  OrDie(stream_.Synchronize());
  const absl::Duration wall = Now() - opened;
  const std::optional<BatchTimes> times = timer_->Take();
  ASSERT_TRUE(times.has_value());
  EXPECT_LE(*times->copy + *times->exchange + *times->pack, wall);
}

// Like an exchange that waits for a peer that is behind.
TEST_F(StagingTimerGpuTest, CountsWhatTheStreamWaitsForInAPhase) {
  OrDie(timer_->Begin(7, 0, stream_.get()));
  OrDie(timer_->End(StagingTimer::kCopy, stream_.get()));
  Gate gate(stream_.get());
  OrDie(timer_->End(StagingTimer::kExchange, stream_.get()));
  OrDie(timer_->End(StagingTimer::kPack, stream_.get()));
  gate.AwaitReached();
  const absl::Time reached = Now();
  for (int i = 0; i < kManyTimes; ++i) {
    ASSERT_FALSE(timer_->Take().has_value());
  }
  const absl::Duration waited = Now() - reached;
  gate.Open();
  OrDie(stream_.Synchronize());
  const std::optional<BatchTimes> times = timer_->Take();
  ASSERT_TRUE(times.has_value());
  EXPECT_GE(*times->exchange, waited * 0.99);  // clocks differ
}

// on_look serves threads that may not query the device themselves.
TEST(DeviceWatchGpuTest, EachLookCallsOnLook) {
  ManualClock clock;
  std::atomic<int> looks = 0;
  const Finding nothing;
  DeviceWatch::Options options;
  options.clock = &clock;
  options.on_look = [&] { ++looks; };
  const auto watch = OrDie(DeviceWatch::Create({}, &nothing, options));
  for (int look = 1; look <= 2; ++look) {
    clock.AwaitSleepers(1);
    clock.Advance(options.interval);
    clock.AwaitSleepers(1);
    EXPECT_EQ(looks, look);
  }
}

// ---- What the shim reports ----

struct Reports {
  Mutex mutex;
  std::vector<v1::StepTiming> timings ABSL_GUARDED_BY(mutex);

  FakeLoader Loader(v1::Delivery delivery) {
    FakeLoader loader;
    loader.job.delivery = delivery;
    loader.job.vision_dp = loader.job.language_dp = 2;
    loader.job.pp = 2;
    loader.on_report = [this](const v1::StepTiming& timing) {
      MutexLock lock(&mutex);
      timings.push_back(timing);
      return absl::OkStatus();
    };
    return loader;
  }
  v1::StepTiming last() {
    MutexLock lock(&mutex);
    return timings.back();
  }
};

std::unique_ptr<CudaTrainerShim> ShimOf(
    FakeLoader loader, v1::Module module, uint32_t rank,
    std::unique_ptr<Communicator> communicator, bool overlap,
    uint32_t pp_rank = 0) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  CudaTrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.role.set_dp_rank(rank);
  options.source.place.pp_rank = pp_rank;
  options.source.steps = 3;
  options.communicator = std::move(communicator);
  options.overlap = overlap;
  return OrDie(CudaTrainerShim::Create(std::move(options), std::move(clients)));
}

void ExpectAllPhases(const v1::StepTiming& timing, bool exchanges) {
  EXPECT_TRUE(timing.has_wait_milliseconds());
  EXPECT_GT(timing.copy_milliseconds(), 0);
  EXPECT_GT(timing.pack_milliseconds(), 0);
  EXPECT_EQ(timing.has_exchange_milliseconds(), exchanges);
  if (exchanges) {
    EXPECT_GT(timing.exchange_milliseconds(), 0);
  }
}

class ReportGpuTest : public ::testing::TestWithParam<v1::Module> {};

// Two ranks exchange; each reports a batch as soon as it is done.
TEST_P(ReportGpuTest, ABatchOnTheDeviceIsReportedWithItsTimes) {
  for (const bool overlap : {false, true}) {
    Reports reports[2];
    auto group = InProcessDeviceGroup(2);
    std::vector<std::unique_ptr<CudaTrainerShim>> shims;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      shims.push_back(ShimOf(reports[rank].Loader(v1::DELIVERY_EXCHANGE),
                             GetParam(), rank, std::move(group[rank]),
                             overlap));
    }
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const CudaStream stream = OrDie(CudaStream::Create());
        while (true) {
          const absl::Time begin = Now();
          const auto batch = shims[rank]->Next(stream.get());
          if (absl::IsOutOfRange(batch.status())) return;
          OrDie(batch.status());
          OrDie(stream.Synchronize());
          const double wall = absl::ToDoubleMilliseconds(Now() - begin);
          OrDie(shims[rank]->ReportTiming((*batch)->step, (*batch)->micro_batch,
                                          1));
          const v1::StepTiming timing = reports[rank].last();
          EXPECT_EQ(timing.step(), (*batch)->step);
          EXPECT_EQ(timing.micro_batch(), (*batch)->micro_batch);
          ExpectAllPhases(timing, true);
          // Without overlap the whole batch is made between the two times.
          if (!overlap) {
            EXPECT_LE(SumOf(timing), wall);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Reports& each : reports) {
      MutexLock lock(&each.mutex);
      EXPECT_EQ(each.timings.size(), 6u);
    }
  }
}

// By then the staged batches have been reused.
TEST_P(ReportGpuTest, BatchesAreReportedAfterTheLastOne) {
  Reports reports;
  const auto shim = ShimOf(reports.Loader(v1::DELIVERY_DIRECT), GetParam(), 0,
                           nullptr, /*overlap=*/true);
  const CudaStream stream = OrDie(CudaStream::Create());
  std::vector<std::pair<uint64_t, uint32_t>> batches;
  while (true) {
    const auto batch = shim->Next(stream.get());
    if (absl::IsOutOfRange(batch.status())) break;
    OrDie(batch.status());
    batches.emplace_back((*batch)->step, (*batch)->micro_batch);
  }
  OrDie(stream.Synchronize());
  ASSERT_EQ(batches.size(), 6u);
  for (const auto& [step, micro_batch] : batches) {
    OrDie(shim->ReportTiming(step, micro_batch, 1));
    ExpectAllPhases(reports.last(), false);
  }
}

// A stage that receives nothing: any vision stage except the first.
TEST(ReportGpuTest, ARankWithoutABlockHasNoTimes) {
  Reports reports;
  const auto shim =
      ShimOf(reports.Loader(v1::DELIVERY_DIRECT), v1::MODULE_VISION, 0, nullptr,
             /*overlap=*/false, /*pp_rank=*/1);
  const CudaStream stream = OrDie(CudaStream::Create());
  OrDie(shim->Next(stream.get()).status());
  OrDie(stream.Synchronize());
  OrDie(shim->ReportTiming(0, 0, 1));
  const v1::StepTiming timing = reports.last();
  EXPECT_FALSE(timing.has_wait_milliseconds());
  EXPECT_FALSE(timing.has_copy_milliseconds());
  EXPECT_FALSE(timing.has_exchange_milliseconds());
  EXPECT_FALSE(timing.has_pack_milliseconds());
}

INSTANTIATE_TEST_SUITE_P(Modules, ReportGpuTest,
                         ::testing::Values(v1::MODULE_VISION,
                                           v1::MODULE_LANGUAGE));

}  // namespace
}  // namespace ballast
