// Whether a trainer waits, as far as what is built when decides it: the order
// of work, prefetching and memory, driven by a clock of numbers. How long
// samples take to decode was recorded; nothing runs, so nothing but those
// decides.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <vector>

#include <gtest/gtest.h>

#include "server/delivery/block_ledger.h"
#include "server/delivery/stream_progress.h"
#include "server/delivery/work_queue.h"

namespace ballast {
namespace {

// Milliseconds that single images took to decode and resize, one after the
// other as tests/benchmarks/first_batch_benchmark.cc goes through them: drawn
// receipts, on a machine with two cores on which others worked, too, whence the
// long ones.
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

constexpr uint32_t kSamples = 8;  // of a block
constexpr uint64_t kBlockBytes = 1 << 20;

// `streams` clients, each of which takes a block every `step_ms`, holds it
// meanwhile, and waits where there is none.
class Simulation {
 public:
  Simulation(uint32_t threads, uint32_t streams, uint32_t prefetch,
             uint64_t memory, double step_ms)
      : ledger_(memory, streams, 0, memory),
        idle_threads_(threads),
        step_ms_(step_ms) {
    for (uint32_t i = 0; i < streams; ++i) {
      streams_.emplace_back(prefetch);
      Advance(i);
    }
  }

  // Milliseconds that clients have waited, from their block number `after` on,
  // until each has had `blocks`.
  double Run(uint64_t blocks, uint64_t after) {
    double waited = 0;
    std::vector<double> wants(streams_.size(), 0);
    while (true) {
      bool all = true;
      for (uint32_t i = 0; i < streams_.size(); ++i) {
        Stream& stream = streams_[i];
        while (stream.taken < blocks && wants[i] <= now_ && Ready(stream)) {
          if (stream.taken >= after) waited += now_ - wants[i];
          Take(i);
          wants[i] = now_ + step_ms_;
        }
        all = all && stream.taken == blocks;
      }
      if (all) return waited;
      StartThreads();
      // To the next thing that happens: a sample is done or a client wants.
      double next = events_.empty() ? 1e18 : events_.top().time;
      for (uint32_t i = 0; i < streams_.size(); ++i) {
        if (streams_[i].taken < blocks && wants[i] > now_) {
          next = std::min(next, wants[i]);
        }
      }
      if (next == 1e18) return 1e18;  // stuck
      now_ = next;
      while (!events_.empty() && events_.top().time <= now_) {
        const uint64_t block = events_.top().block;
        events_.pop();
        ++idle_threads_;
        if (--blocks_[block].left == 0) ledger_.OnBuilt(block, true);
      }
    }
  }

 private:
  struct Stream {
    explicit Stream(uint32_t prefetch) : progress({{0, 0}, 0}, prefetch) {}
    StreamProgress progress;
    std::vector<uint64_t> begun;
    uint64_t taken = 0;
    std::optional<uint64_t> held;
  };
  class Run_ : public ItemRun {
   public:
    explicit Run_(uint64_t block) : block(block) {}
    uint32_t items() const override { return kSamples; }
    void Run(uint32_t) override {}
    const uint64_t block;
  };
  struct Building {
    uint32_t left = kSamples;
  };
  struct Event {
    double time;
    uint64_t block;
    bool operator<(const Event& other) const { return time > other.time; }
  };

  bool Ready(const Stream& stream) {
    return stream.taken < stream.begun.size() &&
           blocks_[stream.begun[stream.taken]].left == 0;
  }

  void Take(uint32_t i) {
    Stream& stream = streams_[i];
    if (stream.held.has_value()) ledger_.Release(i + 1, *stream.held);
    stream.held = stream.begun[stream.taken++];
    ledger_.Lend(i + 1, *stream.held);
    stream.progress.OnTaken();
    for (uint32_t other = 0; other < streams_.size(); ++other) Advance(other);
  }

  void Advance(uint32_t i) {
    Stream& stream = streams_[i];
    std::vector<uint64_t> gone;
    while (true) {
      const StreamProgress::Decision next = stream.progress.Next();
      if (next.action == StreamProgress::Action::kNothing) return;
      if (next.action == StreamProgress::Action::kPlan) {
        stream.progress.OnPlanned(kBlockBytes - 4096, 1);
        continue;
      }
      const auto grant = ledger_.Acquire(
          i + 1, {v1::MODULE_VISION, i, next.block}, next.bytes, &gone);
      if (!grant.has_value()) return;
      stream.progress.OnBegun();
      stream.begun.push_back(grant->block);
      if (grant->is_new) {
        blocks_[grant->block] = {};
        queue_.AddRun(next.distance, std::make_shared<Run_>(grant->block));
      }
    }
  }

  void StartThreads() {
    while (idle_threads_ > 0) {
      auto work = queue_.Pop();
      if (!work.has_value()) return;
      --idle_threads_;
      const double took = kRecorded[samples_++ % std::size(kRecorded)];
      events_.push({now_ + took, static_cast<Run_*>(work->run.get())->block});
    }
  }

  BlockLedger ledger_;
  WorkQueue queue_;
  std::vector<Stream> streams_;
  std::map<uint64_t, Building> blocks_;
  std::priority_queue<Event> events_;
  uint32_t idle_threads_;
  const double step_ms_;
  uint64_t samples_ = 0;
  double now_ = 0;
};

// A step that leaves `slack` times what decoding its samples takes.
double StepMs(uint32_t threads, uint32_t streams, double slack) {
  return slack * Mean() * kSamples * streams / threads;
}

// Steps that are to be prefetched so that what is prepared lasts for twice as
// long as the longest sample takes.
uint32_t PrefetchFor(double step_ms) {
  const double longest =
      *std::max_element(std::begin(kRecorded), std::end(kRecorded));
  return static_cast<uint32_t>(std::ceil(2 * longest / step_ms)) + 2;
}

// Once prefetching has filled up, nobody waits where decoding keeps up by a
// tenth and what is prepared outlasts the longest sample, whatever the number
// of threads and clients.
TEST(SteadyStateTest, NobodyWaitsWhereDecodingKeepsUp) {
  for (const uint32_t threads : {1, 4, 16}) {
    for (const uint32_t streams : {1, 4, 16}) {
      const double step_ms = StepMs(threads, streams, 1.1);
      const uint32_t prefetch = PrefetchFor(step_ms);
      Simulation simulation(threads, streams, prefetch,
                            streams * (prefetch + 2) * kBlockBytes, step_ms);
      EXPECT_EQ(simulation.Run(300, 100), 0)
          << threads << " threads, " << streams << " clients, " << prefetch
          << " steps";
    }
  }
}

// Memory for fewer blocks than that prefetches less and does no more harm.
TEST(SteadyStateTest, NorWithMemoryForThreeBlocksAClientWhereStepsAreLong) {
  const double step_ms = StepMs(8, 16, 1.5);
  Simulation simulation(8, 16, 4, 16 * 3 * kBlockBytes, step_ms);
  EXPECT_EQ(simulation.Run(300, 100), 0);
}

// The other way round, so that the test can tell.
TEST(SteadyStateTest, TheyWaitWhereItDoesNot) {
  Simulation simulation(4, 4, 4, 4 * 8 * kBlockBytes, StepMs(4, 4, 0.9));
  EXPECT_GT(simulation.Run(200, 60), 0);
}

}  // namespace
}  // namespace ballast
