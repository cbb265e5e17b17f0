// Cancel at every point of a shim's life: whatever it does then, both ranks
// end, with the cause, after batches that are right.

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "common/mutex.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

constexpr uint64_t kSteps = 3;

// The points that all threads of a run pass, in the order in which they do. At
// point `at` a thread cancels the shim `victim`.
class Points {
 public:
  // `waits`: whoever passes the point goes on once Cancel has returned.
  Points(size_t at, bool waits) : at_(at), waits_(waits) {}
  ~Points() {
    if (canceller_.joinable()) canceller_.join();
  }

  // The shim does not exist before this, nor after Forget.
  void SetVictim(TrainerShim* victim) {
    MutexLock lock(&mutex_);
    victim_ = victim;
    if (is_due_) victim->Cancel();
  }
  // Waits for a Cancel in progress.
  void Forget() {
    MutexLock lock(&mutex_);
    victim_ = nullptr;
  }

  void Pass() {
    if (passed_.fetch_add(1) != at_) return;
    canceller_ = std::thread([this] {
      MutexLock lock(&mutex_);
      is_due_ = true;
      if (victim_ != nullptr) victim_->Cancel();
    });
    if (waits_) canceller_.join();
  }

  bool reached() const { return passed_ > at_; }

 private:
  const size_t at_;
  const bool waits_;
  std::atomic<size_t> passed_ = 0;
  std::thread canceller_;  // of the thread that passes `at_`
  Mutex mutex_;
  TrainerShim* victim_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool is_due_ ABSL_GUARDED_BY(mutex_) = false;
};

// A communicator with a point before and after each call.
class PointedCommunicator final : public Communicator {
 public:
  PointedCommunicator(std::unique_ptr<Communicator> inner, Points* points)
      : inner_(std::move(inner)), points_(points) {}

  uint32_t rank() const override { return inner_->rank(); }
  uint32_t size() const override { return inner_->size(); }
  bool on_device() const override { return false; }
  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle stream) override {
    points_->Pass();
    absl::Status status = inner_->AllToAllV(sends, receives, stream);
    points_->Pass();
    return status;
  }
  absl::Status Check() override { return inner_->Check(); }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }

 private:
  const std::unique_ptr<Communicator> inner_;
  Points* const points_;
};

struct RankRun {
  std::vector<std::string> batches;  // digests
  absl::Status end;
};

RankRun RunRank(uint32_t rank, std::unique_ptr<Communicator> end,
                v1::Delivery delivery, Points* points, bool is_victim) {
  RankRun run;
  FakeLoader loader;
  loader.job.delivery = delivery;
  loader.before_fetch = [points](const v1::Role&, uint64_t, uint32_t) {
    points->Pass();
    return absl::OkStatus();
  };
  loader.on_block = [points](uint64_t, uint32_t, absl::Span<uint8_t>) {
    points->Pass();
  };
  loader.on_schedule = [points](v1::StepSchedule*) {
    points->Pass();
    return absl::OkStatus();
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(loader));
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, rank);
  options.communicator =
      std::make_unique<PointedCommunicator>(std::move(end), points);
  options.source.start_step = 4;
  options.source.steps = kSteps;
  auto shim = TrainerShim::Create(std::move(options), std::move(clients));
  if (!shim.ok()) return {{}, shim.status()};
  if (is_victim) points->SetVictim(shim->get());
  while (run.end.ok()) {
    points->Pass();
    const auto batch = (*shim)->Next();
    points->Pass();
    if (batch.ok()) {
      run.batches.push_back(ComputeDigest(**batch));
    } else {
      run.end = batch.status();
    }
  }
  EXPECT_EQ((*shim)->Next().status(), run.end) << "errors are final";
  if (is_victim) points->Forget();
  return run;
}

// Runs both ranks, of which `victim` is cancelled.
std::vector<RankRun> RunBoth(v1::Delivery delivery, uint32_t victim,
                             Points* points) {
  auto ends = InProcessGroup(2);
  std::vector<RankRun> runs(2);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank, end = std::move(ends[rank])]() mutable {
      runs[rank] =
          RunRank(rank, std::move(end), delivery, points, rank == victim);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

class CancellationTest : public ::testing::TestWithParam<v1::Delivery> {};

TEST_P(CancellationTest, EndsBothRanksWhereverItComes) {
  Points none(SIZE_MAX, false);
  const std::vector<RankRun> wanted = RunBoth(GetParam(), 0, &none);
  ASSERT_EQ(wanted[0].end.code(), absl::StatusCode::kOutOfRange);
  ASSERT_EQ(wanted[0].batches.size(), 2 * kSteps);
  size_t runs = 0, cancelled = 0;
  for (const bool waits : {false, true}) {
    for (uint32_t victim = 0; victim < 2; ++victim) {
      for (size_t at = 0;; ++at) {
        SCOPED_TRACE(testing::Message() << "rank " << victim << " at point "
                                        << at << ", waits: " << waits);
        Points points(at, waits);
        const std::vector<RankRun> both = RunBoth(GetParam(), victim, &points);
        ++runs;
        for (uint32_t rank = 0; rank < 2; ++rank) {
          const RankRun& run = both[rank];
          ASSERT_LE(run.batches.size(), wanted[rank].batches.size());
          for (size_t i = 0; i < run.batches.size(); ++i) {
            EXPECT_EQ(run.batches[i], wanted[rank].batches[i]) << rank;
          }
          cancelled += absl::IsCancelled(run.end);
          if (absl::IsOutOfRange(run.end)) {
            EXPECT_EQ(run.batches.size(), wanted[rank].batches.size());
          } else {
            // A peer may see that the other has left before it hears why.
            EXPECT_TRUE(absl::IsCancelled(run.end) ||
                        (rank != victim && absl::IsUnavailable(run.end)))
                << run.end;
            EXPECT_TRUE(absl::StrContains(run.end.message(), "language rank"))
                << run.end;
          }
        }
        if (!points.reached()) break;
      }
    }
  }
  RecordProperty("runs", static_cast<int>(runs));
  std::printf("%zu runs, %zu ranks ended as cancelled\n", runs, cancelled);
  EXPECT_GT(cancelled, runs / 2);
}

INSTANTIATE_TEST_SUITE_P(Deliveries, CancellationTest,
                         ::testing::Values(v1::DELIVERY_EXCHANGE,
                                           v1::DELIVERY_HYBRID,
                                           v1::DELIVERY_DIRECT));

}  // namespace
}  // namespace ballast
