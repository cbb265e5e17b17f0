#include "client/spread_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "tests/fakes/formula_block.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

constexpr size_t kBlockBytes = 200;
constexpr uint64_t kBlocks = 8;  // that fit into the credit

using Place = std::pair<uint64_t, uint32_t>;

// Micro-batches of a step: some steps are longer than others.
uint32_t MicroBatchesOf(uint64_t step) { return 2 + step % 3; }

std::vector<uint8_t> BytesOf(const Place& place) {
  return TinyBlock(place.first, place.second, MicroBatchesOf(place.first),
                   kBlockBytes, place.first * 7 + place.second);
}

// A clock that a sleep moves on at once.
class FastClock final : public Clock {
 public:
  absl::Time Now() override {
    return absl::UnixEpoch() + absl::Nanoseconds(now_->load());
  }
  std::unique_ptr<Sleeper> NewSleeper() override {
    return std::make_unique<FastSleeper>(now_);
  }

 private:
  class FastSleeper final : public Sleeper {
   public:
    explicit FastSleeper(std::shared_ptr<std::atomic<int64_t>> now)
        : now_(std::move(now)) {}
    bool Sleep(absl::Duration duration) override {
      *now_ += absl::ToInt64Nanoseconds(duration);
      std::this_thread::yield();
      return !woken_;
    }
    void Wake() override { woken_ = true; }

   private:
    const std::shared_ptr<std::atomic<int64_t>> now_;
    std::atomic<bool> woken_ = false;
  };
  const std::shared_ptr<std::atomic<int64_t>> now_ =
      std::make_shared<std::atomic<int64_t>>(0);
};

// Servers that make the blocks that a request wants, until they are killed.
class FakeServers {
 public:
  explicit FakeServers(size_t servers) : alive_(servers, true) {}

  BatchStream::Connect connect() {
    return [this](size_t server, const FetchRequest& request)
               -> absl::StatusOr<std::unique_ptr<BatchFetcher>> {
      return std::make_unique<Fetcher>(this, server, request);
    };
  }
  absl::StatusOr<uint32_t> Ask(size_t server) {
    MutexLock lock(&mutex_);
    asked_.insert(server);
    if (refusals_.count(server) > 0) {
      return absl::FailedPreconditionError("another job's server");
    }
    if (!alive_[server]) return absl::UnavailableError("no such server");
    const auto weight = weights_.find(server);
    return weight == weights_.end() ? 1 : weight->second;
  }
  void SetAlive(size_t server, bool alive) {
    MutexLock lock(&mutex_);
    if (server >= alive_.size()) alive_.resize(server + 1);
    alive_[server] = alive;
    changed_.NotifyAll();
  }
  void Refuse(size_t server) {
    MutexLock lock(&mutex_);
    refusals_.insert(server);
  }
  void SetWeight(size_t server, uint32_t weight) {
    MutexLock lock(&mutex_);
    weights_[server] = weight;
  }
  // Those that have been asked.
  std::set<size_t> asked() const {
    MutexLock lock(&mutex_);
    return asked_;
  }
  // Blocks that each server has delivered since the last call.
  std::map<size_t, int> TakeMade() {
    MutexLock lock(&mutex_);
    return std::exchange(made_, {});
  }
  uint64_t most_held() const {
    MutexLock lock(&mutex_);
    return most_held_;
  }
  std::vector<std::string> names() const {
    MutexLock lock(&mutex_);
    std::vector<std::string> names;
    for (size_t i = 0; i < alive_.size(); ++i) {
      names.push_back(absl::StrCat("server ", i));
    }
    return names;
  }

 private:
  class Made final : public FetchedBlock {
   public:
    Made(FakeServers* servers, const Place& place)
        : servers_(servers), place_(place), bytes_(BytesOf(place)) {}
    ~Made() override {
      MutexLock lock(&servers_->mutex_);
      servers_->held_ -= bytes_.size();
    }
    uint64_t step() const override { return place_.first; }
    uint32_t micro_batch() const override { return place_.second; }
    absl::Span<const uint8_t> bytes() const override { return bytes_; }

   private:
    FakeServers* const servers_;
    const Place place_;
    const std::vector<uint8_t> bytes_;
  };

  class Fetcher final : public BatchFetcher {
   public:
    Fetcher(FakeServers* servers, size_t server, const FetchRequest& request)
        : servers_(servers),
          server_(server),
          share_(*request.share),
          end_(request.steps == 0 ? UINT64_MAX : request.step + request.steps),
          next_(request.step, request.micro_batch) {}

    absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
      MutexLock lock(&servers_->mutex_);
      while (true) {
        if (cancelled_) return absl::CancelledError("cancelled");
        if (!servers_->alive_[server_]) {
          return absl::UnavailableError("connection reset");
        }
        if (next_.first >= end_) return absl::OutOfRangeError("done");
        const Place at = next_;
        next_ = next_.second + 1 < MicroBatchesOf(next_.first)
                    ? Place(next_.first, next_.second + 1)
                    : Place(next_.first + 1, 0);
        if (!share_.Owns(at.first, at.second)) continue;
        auto block = std::make_unique<Made>(servers_, at);
        ++servers_->made_[server_];
        servers_->held_ += block->bytes().size();
        servers_->most_held_ = std::max(servers_->most_held_, servers_->held_);
        return block;
      }
    }
    void Cancel() override {
      MutexLock lock(&servers_->mutex_);
      cancelled_ = true;
    }

   private:
    FakeServers* const servers_;
    const size_t server_;
    const BlockShare share_;
    const uint64_t end_;
    Place next_;
    bool cancelled_ = false;
  };

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<bool> alive_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> refusals_ ABSL_GUARDED_BY(mutex_);
  std::map<size_t, uint32_t> weights_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> asked_ ABSL_GUARDED_BY(mutex_);
  std::map<size_t, int> made_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t most_held_ ABSL_GUARDED_BY(mutex_) = 0;
};

SpreadOptions OptionsOf(FakeServers* servers, uint64_t steps,
                        absl::Duration patience = absl::InfiniteDuration()) {
  SpreadOptions options;
  options.stream.request.role.set_split(v1::SPLIT_TRAIN);
  options.stream.request.role.set_module(v1::MODULE_VISION);
  options.stream.request.steps = steps;
  options.stream.request.max_bytes = kBlocks * kBlockBytes;
  options.stream.servers = servers->names();
  options.stream.failover.silent_after = absl::InfiniteDuration();
  options.stream.failover.slow_after = absl::InfiniteDuration();
  options.stream.failover.patience = patience;
  static FastClock* const clock = new FastClock;
  options.stream.clock = clock;
  options.stride = 3;
  options.ask = [servers](size_t server) { return servers->Ask(server); };
  options.list = [servers] { return servers->names(); };
  return options;
}

void ExpectBlock(BatchStream* stream, const Place& place) {
  const auto block = stream->Next();
  ASSERT_TRUE(block.ok()) << block.status();
  ASSERT_EQ(Place((*block)->step(), (*block)->micro_batch()), place);
  const std::vector<uint8_t> wanted = BytesOf(place);
  EXPECT_TRUE(absl::MakeSpan(wanted) == (*block)->bytes());
}

void ExpectSteps(BatchStream* stream, uint64_t first, uint64_t count) {
  for (uint64_t step = first; step < first + count; ++step) {
    for (uint32_t m = 0; m < MicroBatchesOf(step); ++m) {
      ExpectBlock(stream, {step, m});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(SpreadStreamTest, BlocksOfAllServersComeInOrderWithinOneCredit) {
  FakeServers servers(3);
  const auto stream =
      *CreateSpreadStream(servers.connect(), OptionsOf(&servers, 200));
  ExpectSteps(stream.get(), 0, 200);
  EXPECT_EQ(stream->Next().status().code(), absl::StatusCode::kOutOfRange);
  const std::map<size_t, int> made = servers.TakeMade();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(made.at(i), 200, 10);
  EXPECT_LE(servers.most_held(), kBlocks * kBlockBytes);
}

// Of a tier of thousands a rank talks to a few: to others once one of them is
// away, and no longer than it is.
TEST(SpreadStreamTest, ARankTalksToNoMoreServersThanItMay) {
  FakeServers servers(4096);
  SpreadOptions options = OptionsOf(&servers, 0);
  options.most_servers = 4;
  const auto stream = *CreateSpreadStream(servers.connect(), options);
  ExpectSteps(stream.get(), 0, 200);
  const std::map<size_t, int> made = servers.TakeMade();
  EXPECT_EQ(made.size(), 4u);
  EXPECT_EQ(servers.asked().size(), 4u);
  servers.SetAlive(made.begin()->first, false);
  ExpectSteps(stream.get(), 200, 200);
  EXPECT_EQ(servers.asked().size(), 5u);
  servers.TakeMade();
  ExpectSteps(stream.get(), 400, 100);
  EXPECT_EQ(servers.TakeMade().size(), 4u);
}

TEST(SpreadStreamTest, SharesAreAsLargeAsWeights) {
  FakeServers servers(3);
  servers.SetWeight(0, 4);
  servers.SetWeight(1, 0);  // says none: counts as 1
  servers.SetWeight(2, 3);
  const auto stream =
      *CreateSpreadStream(servers.connect(), OptionsOf(&servers, 400));
  ExpectSteps(stream.get(), 0, 400);
  const std::map<size_t, int> made = servers.TakeMade();
  EXPECT_NEAR(made.at(0), 600, 15);
  EXPECT_NEAR(made.at(1), 150, 15);
  EXPECT_NEAR(made.at(2), 450, 15);
}

// One that comes back with other processors has another share from then on.
TEST(SpreadStreamTest, AWeightMayChange) {
  FakeServers servers(2);
  const auto stream =
      *CreateSpreadStream(servers.connect(), OptionsOf(&servers, 0));
  ExpectSteps(stream.get(), 0, 10);
  servers.SetAlive(1, false);
  ExpectSteps(stream.get(), 10, 10);
  servers.SetWeight(1, 3);
  servers.SetAlive(1, true);
  uint64_t step = 20;
  servers.TakeMade();
  while (servers.TakeMade().count(1) == 0) ExpectSteps(stream.get(), step++, 1);
  servers.TakeMade();
  ExpectSteps(stream.get(), step, 200);
  const std::map<size_t, int> made = servers.TakeMade();
  EXPECT_NEAR(made.at(1), 450, 20);
  EXPECT_NEAR(made.at(0), 150, 20);
}

// A caller that keeps more blocks than the credit still gets the next one.
TEST(SpreadStreamTest, KeptBlocksDoNotStopTheNext) {
  FakeServers servers(2);
  SpreadOptions options = OptionsOf(&servers, 40);
  options.stream.request.max_bytes = 1;
  const auto stream = *CreateSpreadStream(servers.connect(), options);
  std::vector<std::unique_ptr<FetchedBlock>> kept;
  for (uint64_t step = 0; step < 40; ++step) {
    for (uint32_t m = 0; m < MicroBatchesOf(step); ++m) {
      kept.push_back(*stream->Next());
      EXPECT_EQ(Place(kept.back()->step(), kept.back()->micro_batch()),
                Place(step, m));
    }
  }
}

TEST(SpreadStreamTest, ServersComeAndGoAndNoBlockIsLost) {
  FakeServers servers(4);
  const auto stream =
      *CreateSpreadStream(servers.connect(), OptionsOf(&servers, 0));
  uint64_t random = 1;
  const auto below = [&](uint64_t bound) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return (random >> 33) % bound;
  };
  std::vector<bool> alive(4, true);
  uint64_t step = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t server = below(alive.size());
    const bool is_last =
        alive[server] && std::count(alive.begin(), alive.end(), true) == 1;
    if (!is_last) {
      alive[server] = !alive[server];
      servers.SetAlive(server, alive[server]);
    }
    const uint64_t steps = 1 + below(6);
    ExpectSteps(stream.get(), step, steps);
    ASSERT_FALSE(HasFatalFailure()) << "after change " << i;
    step += steps;
  }
}

TEST(SpreadStreamTest, AServerOfAnotherJobIsRefusedAndTheRestGoOn) {
  FakeServers servers(3);
  servers.Refuse(1);
  const auto stream =
      *CreateSpreadStream(servers.connect(), OptionsOf(&servers, 100));
  ExpectSteps(stream.get(), 0, 100);
  EXPECT_EQ(servers.TakeMade().count(1), 0u);
}

TEST(SpreadStreamTest, ANewServerHasItsShareWithinTenSeconds) {
  FakeServers servers(2);
  ManualClock clock;
  SpreadOptions options = OptionsOf(&servers, 0);
  options.stream.clock = &clock;
  const auto stream = *CreateSpreadStream(servers.connect(), options);
  // The consumer may sleep until all have been asked, and begin to at any time.
  uint64_t step = 0;
  std::atomic<bool> came = false;
  std::thread first([&] {
    ExpectSteps(stream.get(), step++, 1);
    came = true;
  });
  while (!came) {
    clock.AwaitSleepers(1);
    clock.Advance(absl::Milliseconds(250));
  }
  first.join();
  servers.SetAlive(2, true);
  const absl::Time joined = clock.Now();
  servers.TakeMade();
  while (servers.TakeMade().count(2) == 0) {
    ASSERT_LT(clock.Now() - joined, absl::Seconds(10));
    clock.AwaitSleepers(1);
    clock.Advance(absl::Milliseconds(250));
    ExpectSteps(stream.get(), step, 4);
    step += 4;
  }
}

TEST(SpreadStreamTest, WithoutAServerItEndsAndNamesEach) {
  FakeServers servers(2);
  const auto stream = *CreateSpreadStream(
      servers.connect(), OptionsOf(&servers, 0, absl::Minutes(5)));
  ExpectSteps(stream.get(), 0, 3);
  servers.SetAlive(0, false);
  servers.SetAlive(1, false);
  absl::Status end;
  while (end.ok()) end = stream->Next().status();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  for (const char* part : {"server 0: ", "server 1: "}) {
    EXPECT_NE(end.message().find(part), absl::string_view::npos) << end;
  }
}

TEST(SpreadStreamTest, CancelEndsNext) {
  FakeServers servers(2);
  const auto stream =
      *CreateSpreadStream(servers.connect(), OptionsOf(&servers, 0));
  ExpectSteps(stream.get(), 0, 2);
  stream->Cancel();
  EXPECT_EQ(stream->Next().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ballast
