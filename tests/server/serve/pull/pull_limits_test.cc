// 512 ranks at one server, 64 of which are idle or mean harm.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/service/loader_service.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/server/serve/service/loader_service_fixture.h"
#include "tests/server/serve/service/puller.h"

namespace ballast {
namespace {

constexpr uint32_t kRanks = 512;
constexpr uint32_t kHostile = 64;
constexpr uint32_t kConnections = 8;
constexpr uint64_t kPlenty = uint64_t{1} << 40;

v1::Config Config() {
  v1::Config config =
      JobConfig(/*vision_dp=*/0, kRanks, 2 * kRanks, kRanks, v1::DELIVERY_OFF);
  config.mutable_serve()->set_memory(uint64_t{64} << 20);
  return config;
}

class FairPullsTest : public ::testing::Test {
 protected:
  using Pulls = std::vector<std::unique_ptr<Puller>>;

  FairPullsTest() {
    loader_ = *Loader::Create(config_, kRanks, scheduler_.get(),
                              std::make_unique<FakeSampleBuilder>());
    service_ = std::make_unique<LoaderServiceImpl>("me", scheduler_.get(),
                                                   loader_.get(), &calls_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    for (uint32_t i = 0; i < 2 * kConnections; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt("connection", i);  // shares no connection
      stubs_.push_back(v1::LoaderService::NewStub(grpc::CreateCustomChannel(
          absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(),
          arguments)));
    }
  }
  ~FairPullsTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  v1::LoaderService::Stub* Obedient(uint32_t rank) {
    return stubs_[rank % kConnections].get();
  }
  v1::LoaderService::Stub* Hostile(uint32_t rank) {
    return stubs_[kConnections + rank % kConnections].get();
  }
  void Open(Puller* puller, uint32_t rank, uint64_t steps, uint64_t credit,
            uint64_t step = 0) {
    puller->Open(scheduler_->fingerprint().hash(), v1::MODULE_LANGUAGE, rank,
                 steps, credit, step);
  }

  // Lets rank `rank` of the first kHostile misbehave once more, near `step`.
  void Misbehave(uint32_t rank, uint64_t step, Pulls* pulls) {
    pulls->push_back(std::make_unique<Puller>(Hostile(rank)));
    Puller* const puller = pulls->back().get();
    switch (rank % 4) {
      case 0:  // reads nothing
        return Open(puller, rank, 0, kPlenty, step);
      case 1:  // says nothing
        return;
      case 2:  // takes a block and keeps it
        Open(puller, rank, 0, 0, step);
        puller->ReadBegin();
        return;
      case 3:  // leaves at once, in the middle of a block
        Open(puller, rank, 0, kPlenty, step);
        puller->ReadBegin();
        pulls->pop_back();
        return;
    }
  }

  // Serves `steps` steps to the ranks from kHostile on, while the first ones
  // open 16 Pulls each, and go on, if `hostile`. Returns the blocks a second.
  double Serve(uint64_t first_step, uint64_t steps, bool hostile) {
    constexpr uint32_t kThreads = 4;
    Pulls ranks(kRanks);
    for (uint32_t rank = kHostile; rank < kRanks; ++rank) {
      ranks[rank] = std::make_unique<Puller>(Obedient(rank));
      Open(ranks[rank].get(), rank, steps, 1 << 20, first_step);
    }
    Pulls harm;
    std::atomic<bool> done = false;
    std::thread villain([&] {
      for (uint64_t i = 0; hostile && (i < 16 || !done); ++i) {
        for (uint32_t rank = 0; rank < kHostile; ++rank) {
          Misbehave(rank, first_step + i % steps, &harm);
        }
        if (harm.size() > 2048) harm.erase(harm.begin(), harm.begin() + 1024);
      }
    });
    const absl::Time start = absl::Now();
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&ranks, steps, t] {
        for (uint64_t block = 0; block < 2 * steps; ++block) {
          for (uint32_t rank = kHostile + t; rank < kRanks; rank += kThreads) {
            EXPECT_FALSE(ranks[rank]->NextBlock().empty()) << rank;
            ranks[rank]->Credit(ranks[rank]->begin().bytes());
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const absl::Duration spent = absl::Now() - start;
    done = true;
    villain.join();
    for (uint32_t rank = kHostile; rank < kRanks; ++rank) {
      const grpc::Status status = ranks[rank]->Finish();
      EXPECT_TRUE(status.ok()) << rank << ": " << status.error_message();
    }
    return 2 * steps * (kRanks - kHostile) / absl::ToDoubleSeconds(spent);
  }

  const FakeSourceIndex index_{FormulaSamples(97)};
  const v1::Config config_ = Config();
  const std::unique_ptr<Scheduler> scheduler_ =
      *Scheduler::Create(config_, {&index_});
  std::shared_ptr<Loader> loader_;
  CallCount calls_;
  std::unique_ptr<LoaderServiceImpl> service_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<v1::LoaderService::Stub>> stubs_;
};

// Every other rank gets every block. BALLAST_FAIR_ROUNDS and BALLAST_FAIR_STEPS
// make it long enough for figures.
TEST_F(FairPullsTest, IdleAndHostileRanksCostTheOthersNothing) {
  const auto from_environment = [](const char* name, int value) {
    const char* text = std::getenv(name);
    return text == nullptr ? value : std::max(std::atoi(text), 1);
  };
  const int rounds = from_environment("BALLAST_FAIR_ROUNDS", 1);
  const int steps = from_environment("BALLAST_FAIR_STEPS", 2);
  std::vector<double> without, with;
  uint64_t step = 0;
  for (int round = 0; round < rounds; ++round) {
    without.push_back(Serve(step, steps, /*hostile=*/false));
    with.push_back(Serve(step += steps, steps, /*hostile=*/true));
    step += steps;
  }
  std::sort(without.begin(), without.end());
  std::sort(with.begin(), with.end());
  std::printf(
      "blocks a second, median of %d: %.0f alone, %.0f beside %u ranks "
      "that misbehave\n",
      rounds, without[rounds / 2], with[rounds / 2], kHostile);
}

// Blocks that a client reads in the server's shared memory while its Pull ends.

v1::Config ConfigWithArena() {
  v1::Config config = JobConfig(2, 2, 16, 8);
  config.mutable_serve()->set_arena(::testing::TempDir());
  return config;
}

class LentBlocksTest : public LoaderServiceFixture {
 protected:
  LentBlocksTest() : LoaderServiceFixture(ConfigWithArena()) {}

  // Opens a Pull of vision rank 0, maps the arena and gets the first block.
  // `steps` of 0: without an end.
  v1::PullResponse::Shared Borrow(uint64_t steps) {
    v1::PullRequest request;
    v1::PullRequest::Open& open = *request.mutable_open();
    open.mutable_role()->set_module(v1::MODULE_VISION);
    open.set_steps(steps);
    open.set_fingerprint(fingerprint());
    open.set_credit(kPlenty);
    open.set_accepts_arena(true);
    pull_->Write(request);
    v1::PullResponse message;
    EXPECT_TRUE(pull_->Read(&message) && message.has_arena());
    request.mutable_mapped()->set_nonce(loader_->arena()->nonce);
    pull_->Write(request);
    EXPECT_TRUE(pull_->Read(&message) && message.has_shared());
    return message.shared();
  }

  void Return(const v1::PullResponse::Shared& block) {
    v1::PullRequest request;
    request.mutable_credit()->add_blocks(block.generation());
    pull_->Write(request);
  }

  grpc::ClientContext context_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::PullRequest, v1::PullResponse>>
      pull_ = stub_->Pull(&context_);
};

// The error is told, and the call stays open for the block: only then does the
// server leave its memory alone.
TEST_F(LentBlocksTest, OutliveATransientFaultOfALaterBlock) {
  for (uint64_t position = 8; position < 16; ++position) {
    builder_->FailAt(position, absl::UnavailableError("Input/output error"));
  }
  const v1::PullResponse::Shared block = Borrow(/*steps=*/1);
  v1::PullResponse message;
  ASSERT_TRUE(pull_->Read(&message));
  ASSERT_TRUE(message.has_end()) << message.DebugString();
  EXPECT_EQ(message.end().code(),
            static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  Return(block);
  EXPECT_FALSE(pull_->Read(&message));
  EXPECT_EQ(pull_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A Pull that has sent all its steps lingers for its blocks, and no drain waits
// for it; this one is never through.
TEST_F(LentBlocksTest, DoNotHoldUpADrain) {
  Borrow(/*steps=*/0);
  loader_->Drain();
  v1::PullResponse message;
  while (pull_->Read(&message)) {
  }
  EXPECT_EQ(pull_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void Ignore(const absl::Status&) {}

TEST(PullLimitsTest, BoundsPullsInAllAndPerClient) {
  PullLimits limits({.most = 3, .most_a_client = 2});
  const auto first = limits.Begin("a", Ignore);
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(limits.Begin("a", Ignore).ok());
  const absl::Status third = limits.Begin("a", Ignore).status();
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(third.message()),
      HasSubstr("a has 2 Pulls open, and serve.max_streams_per_client"));
  EXPECT_TRUE(limits.Begin("b", Ignore).ok());
  const absl::Status fourth = limits.Begin("c", Ignore).status();
  EXPECT_EQ(fourth.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(fourth.message()),
              HasSubstr("3 Pulls are open, and serve.max_streams is 3"));
  limits.End("a", *first);
  const auto of_c = limits.Begin("c", Ignore);
  EXPECT_TRUE(of_c.ok());
  EXPECT_FALSE(limits.Begin("a", Ignore).ok());
  limits.End("c", *of_c);
  EXPECT_TRUE(limits.Begin("a", Ignore).ok());
}

TEST(PullLimitsTest, SilentPullsGiveWayInTheOrderOfTheirStart) {
  PullLimits limits({.most_silent = 2});
  std::vector<uint64_t> pulls;
  std::vector<size_t> ended;
  const auto begin = [&] {
    const size_t number = pulls.size();
    pulls.push_back(
        *limits.Begin("a", [&ended, number](const absl::Status& why) {
          EXPECT_EQ(why.code(), absl::StatusCode::kAborted);
          ended.push_back(number);
        }));
  };
  for (int i = 0; i < 2; ++i) begin();
  limits.Spoke(pulls[0]);
  begin();
  EXPECT_THAT(ended, IsEmpty());
  begin();
  EXPECT_THAT(ended, ElementsAre(1));
  limits.End("a", pulls[1]);
  limits.End("a", pulls[2]);
  begin();
  EXPECT_THAT(ended, ElementsAre(1));
  begin();
  EXPECT_THAT(ended, ElementsAre(1, 3));
}

TEST(PullLimitsTest, CountsClientsByAddress) {
  EXPECT_EQ(GetClient("ipv4:10.0.0.1:4711"), "ipv4:10.0.0.1");
  EXPECT_EQ(GetClient("ipv6:%5B::1%5D:4711"), "ipv6:%5B::1%5D");
  EXPECT_EQ(GetClient("unix:/run/a.sock"), "unix");
  EXPECT_EQ(GetClient("unix:"), "unix");
  EXPECT_EQ(GetClient("?"), "?");
}

}  // namespace
}  // namespace ballast
