// Checks whether a trainer waits, as far as that depends on which block is
// built when, i.e. on the server's own planning, prefetching, memory and order
// of work (Loader), on a manual clock. The workers are simulated threads on
// which a sample takes a recorded time. Nothing runs beside the test, so only
// those times matter.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "proto/block/block_plan.h"
#include "server/delivery/arena.h"
#include "server/delivery/block_ledger.h"
#include "server/delivery/loader.h"
#include "server/delivery/worker_pool.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_scheduler.h"

namespace ballast {
namespace {

// Milliseconds that single images took to decode and resize, one after the
// other, in tests/benchmarks/first_batch_benchmark.cc: drawn receipts, on a
// machine with two cores that others used too, which explains the long ones.
constexpr double kRecorded[] = {
    10.6, 2.4, 1.5, 2.2,  23.3, 2.3, 1.5, 2.1,  2.9, 22.5, 2.0, 1.8, 1.2,
    1.2,  1.0, 6.7, 16.2, 1.5,  1.1, 1.2, 17.6, 1.0, 13.6, 0.8, 5.4, 2.4,
    1.5,  7.9, 6.8, 53.6, 2.0,  1.8, 5.9, 1.3,  3.9, 17.4, 4.0, 1.5, 1.0,
    1.2,  5.8, 0.9, 25.3, 0.9,  6.8, 1.2, 1.1,  2.1, 1.1,  1.9, 1.0, 1.2,
    1.5,  1.2, 1.0, 1.6,  3.9,  1.1, 2.0, 1.3,  0.9, 2.1,  0.8, 1.0};

double Mean() {
  return std::accumulate(std::begin(kRecorded), std::end(kRecorded), 0.0) /
         std::size(kRecorded);
}

constexpr uint32_t kSamples = 8;  // per block
constexpr absl::Time kNever = absl::InfiniteFuture();

// Simulated threads. A task takes no time; an item takes the time of the next
// sample of the recording and runs at the end of that time.
class TimedWorkers final : public Workers {
 public:
  TimedWorkers(uint32_t threads, ManualClock* clock)
      : clock_(clock), idle_(threads) {}

  void AddTask(std::function<void()> task) override {
    queue_.AddTask(std::move(task));
  }
  void AddWatchTask(std::function<void()> task) override {
    queue_.AddWatchTask(std::move(task));
  }
  void AddItems(uint64_t distance, std::shared_ptr<WorkItems> items) override {
    queue_.AddItems(distance, std::move(items));
  }
  bool RemoveIfUntouched(const WorkItems* items) override {
    return queue_.RemoveIfUntouched(items);
  }
  void Stop() override {
    queue_ = WorkQueue();
    busy_ = {};
  }

  // Ends items that are due, and makes idle threads begin waiting work.
  void Work() {
    while (!busy_.empty() && busy_.top().end <= clock_->Now()) {
      WorkQueue::Work work = busy_.top().work;
      busy_.pop();
      ++idle_;
      work.Do();
    }
    while (idle_ > 0) {
      auto work = queue_.Pop();
      if (!work.has_value()) return;
      if (work->items == nullptr) {
        work->Do();
        continue;
      }
      --idle_;
      const double took = kRecorded[samples_++ % std::size(kRecorded)];
      busy_.push({clock_->Now() + absl::Milliseconds(took), *std::move(work)});
    }
  }
  // Time at which the next item ends.
  absl::Time NextEnd() const {
    return busy_.empty() ? kNever : busy_.top().end;
  }

 private:
  struct Busy {
    absl::Time end;
    WorkQueue::Work work;
    bool operator<(const Busy& other) const { return end > other.end; }
  };

  ManualClock* const clock_;
  WorkQueue queue_;
  std::priority_queue<Busy> busy_;
  uint32_t idle_;
  uint64_t samples_ = 0;
};

class NoBuilder final : public SampleBuilder {
 public:
  absl::StatusOr<SampleOutcome> Build(const SampleRequest&) const override {
    return SampleOutcome::kBuilt;
  }
};

SyntheticJob JobOf(uint32_t streams) {
  SyntheticJob job;
  job.vision_dp = streams;
  job.language_dp = 0;
  job.samples_per_group = kSamples;
  job.micro_batches = 1;
  job.delivery = v1::DELIVERY_OFF;
  return job;
}

v1::Role RoleOf(uint32_t stream) {
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  role.set_dp_rank(stream);
  return role;
}

// A server with `streams` clients. Each client takes a block every `step`,
// holds it meanwhile, and waits if there is none. The server's memory holds
// `blocks` blocks for each.
class SteadyState {
 public:
  SteadyState(uint32_t threads, uint32_t streams, uint32_t prefetch,
              uint32_t blocks, absl::Duration step)
      : step_(step), scheduler_(JobOf(streams)) {
    auto workers = std::make_unique<TimedWorkers>(threads, &clock_);
    workers_ = workers.get();
    Loader::Settings settings;
    settings.delivery.fill(v1::DELIVERY_OFF);
    settings.geometry = {scheduler_.job().model().patch(), 3};
    settings.memory = streams * blocks * LargestBlock(settings.geometry);
    settings.prefetch_steps = prefetch;
    settings.ranks = streams;
    // The arena's own first page needs room too.
    auto arena = Arena::CreatePrivate(settings.memory + (1 << 20));
    EXPECT_TRUE(arena.ok()) << arena.status();
    loader_ =
        Loader::CreateOver(settings, &scheduler_, std::make_unique<NoBuilder>(),
                           *std::move(arena), std::move(workers));
    for (uint32_t i = 0; i < streams; ++i) {
      auto stream = loader_->OpenStream(RoleOf(i), 0, 0, 0, [] {});
      EXPECT_TRUE(stream.ok()) << stream.status();
      clients_.push_back({*std::move(stream), clock_.Now(), 0, nullptr});
    }
  }

  // Total time that clients have waited, from their block number `after` on,
  // until each has had `blocks`. Infinite if they never get them.
  absl::Duration Run(uint64_t blocks, uint64_t after) {
    absl::Duration waited;
    while (true) {
      // Taking a block enables further work, which may give others blocks.
      bool again = true;
      while (again) {
        again = false;
        workers_->Work();
        for (Client& client : clients_) {
          while (client.taken < blocks && client.wants <= clock_.Now()) {
            auto block = client.stream->TryNext();
            if (!block.has_value()) break;
            EXPECT_TRUE(block->ok()) << block->status();
            again = true;
            if (client.taken >= after) waited += clock_.Now() - client.wants;
            client.holds = **std::move(block);
            client.holds->Lend();
            ++client.taken;
            client.wants = clock_.Now() + step_;
          }
        }
      }
      // Advances to the next event: a sample is done or a client wants a block.
      absl::Time next = workers_->NextEnd();
      bool all = true;
      for (const Client& client : clients_) {
        if (client.taken == blocks) continue;
        all = false;
        if (client.wants > clock_.Now()) next = std::min(next, client.wants);
      }
      if (all) return waited;
      if (next == kNever) return absl::InfiniteDuration();
      clock_.Advance(next - clock_.Now());
    }
  }

 private:
  struct Client {
    std::unique_ptr<BlockStream> stream;
    absl::Time wants;
    uint64_t taken;
    std::unique_ptr<Block> holds;
  };

  uint64_t LargestBlock(const BlockGeometry& geometry) const {
    // The positions' images repeat after four, so all blocks have the same
    // size.
    const auto schedule = scheduler_.Schedule(0);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    const auto plan =
        PlanBlock(*schedule, 0, RoleOf(0), v1::DELIVERY_OFF, geometry);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return BlockLedger::Footprint(plan->bytes());
  }

  const absl::Duration step_;
  ManualClock clock_;
  const SyntheticScheduler scheduler_;
  TimedWorkers* workers_;  // the loader's
  std::shared_ptr<Loader> loader_;
  std::vector<Client> clients_;
};

// The time of a step that is `slack` times the time to decode its samples.
absl::Duration Step(uint32_t threads, uint32_t streams, double slack) {
  return absl::Milliseconds(slack * Mean() * kSamples * streams / threads);
}

// The number of steps to prefetch so that the prepared blocks last twice as
// long as the longest sample takes.
uint32_t PrefetchFor(absl::Duration step) {
  const double longest =
      *std::max_element(std::begin(kRecorded), std::end(kRecorded));
  return static_cast<uint32_t>(
             std::ceil(absl::Milliseconds(2 * longest) / step)) +
         2;
}

// Once prefetching has filled up, no client waits if decoding is faster by a
// tenth and the prepared blocks outlast the longest sample, for any number of
// threads and clients.
TEST(SteadyStateTest, NobodyWaitsIfDecodingKeepsUp) {
  for (const uint32_t threads : {1, 4, 16}) {
    for (const uint32_t streams : {1, 4, 16}) {
      const absl::Duration step = Step(threads, streams, 1.1);
      const uint32_t prefetch = PrefetchFor(step);
      SteadyState job(threads, streams, prefetch, prefetch + 2, step);
      EXPECT_EQ(job.Run(300, 100), absl::ZeroDuration())
          << threads << " threads, " << streams << " clients, " << prefetch
          << " steps";
    }
  }
}

// Memory for fewer blocks reduces prefetching and does no other harm.
TEST(SteadyStateTest, NobodyWaitsWithThreeBlocksPerClientInLongSteps) {
  SteadyState job(8, 16, 4, 3, Step(8, 16, 1.5));
  EXPECT_EQ(job.Run(300, 100), absl::ZeroDuration());
}

// The opposite case, so that the test can tell them apart.
TEST(SteadyStateTest, ClientsWaitIfDecodingIsTooSlow) {
  SteadyState job(4, 4, 4, 8, Step(4, 4, 0.9));
  const absl::Duration waited = job.Run(200, 60);
  EXPECT_GT(waited, absl::ZeroDuration());
  EXPECT_LT(waited, absl::InfiniteDuration());
}

}  // namespace
}  // namespace ballast
