#include "server/serve/pull/pull_call.h"

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/transport.h"
#include "tests/server/serve/service/loader_service_fixture.h"
#include "tests/server/serve/service/puller.h"

namespace ballast {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using PullCallTest = LoaderServiceFixture;

TEST_F(PullCallTest, DeliversInOrderAndEndsWithOk) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    Puller puller(stub_.get());
    puller.Open(fingerprint(), module, 1, 2, kPlenty, 4, 1);
    for (const auto& [step, micro_batch] :
         std::vector<std::pair<uint64_t, uint32_t>>{{4, 1}, {5, 0}, {5, 1}}) {
      const auto block = puller.NextBlock();
      EXPECT_EQ(puller.begin().step(), step);
      EXPECT_EQ(puller.begin().micro_batch(), micro_batch);
      Check(block, module, 1, step, micro_batch);
    }
    EXPECT_TRUE(puller.NextBlock().empty());
    const grpc::Status status = puller.Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(PullCallTest, SendsBlocksOneByOneWithoutCredit) {
  Puller puller(stub_.get());
  puller.Open(fingerprint(), v1::MODULE_VISION, 0, 2, 0);
  for (int i = 0; i < 4; ++i) {
    ASSERT_FALSE(puller.NextBlock().empty());
    puller.Credit(puller.begin().bytes());
  }
  EXPECT_TRUE(puller.NextBlock().empty());
  EXPECT_TRUE(puller.Finish().ok());
}

TEST_F(PullCallTest, ServesManyPullsConcurrently) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      const v1::Module module =
          t % 2 == 0 ? v1::MODULE_VISION : v1::MODULE_LANGUAGE;
      Puller puller(stub_.get());
      puller.Open(fingerprint(), module, t / 2 % 2, 2, 1 << 20);
      for (int i = 0; i < 4; ++i) {
        Check(puller.NextBlock(), module, t / 2 % 2, i / 2, i % 2);
        puller.Credit(puller.begin().bytes());
      }
      EXPECT_TRUE(puller.Finish().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A client that does not read holds back its own blocks, and no other client's.
TEST_F(PullCallTest, ASlowReaderDelaysOnlyItself) {
  Puller slow(stub_.get());
  slow.Open(fingerprint(), v1::MODULE_VISION, 0, 0, kPlenty);
  Puller quick(stub_.get());
  quick.Open(fingerprint(), v1::MODULE_VISION, 1, 5, kPlenty);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(quick.NextBlock().empty());
  EXPECT_TRUE(quick.Finish().ok());
  Check(slow.NextBlock(), v1::MODULE_VISION, 0, 0, 0);
}

TEST_F(PullCallTest, RefusesInvalidRequests) {
  const auto ends_with = [this](auto talk) {
    Puller puller(stub_.get());
    talk(&puller);
    return puller.Finish();
  };
  const auto open = [this](Puller* puller, uint32_t rank,
                           uint32_t micro_batch) {
    puller->Open(fingerprint(), v1::MODULE_VISION, rank, 0, 0, 0, micro_batch);
  };
  EXPECT_EQ(ends_with([&](Puller* p) { open(p, 2, 0); }).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends_with([&](Puller* p) { open(p, 0, 2); }).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends_with([&](Puller* p) { p->Credit(1); }).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends_with([&](Puller* p) { p->WritesDone(); }).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends_with([&](Puller* p) {
              open(p, 0, 0);
              open(p, 0, 0);
            }).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends_with([&](Puller* p) {
              open(p, 0, 0);
              p->Credit(UINT64_MAX);
            }).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends_with([&](Puller* p) {
              p->Open(std::string(32, '0'), v1::MODULE_VISION, 0, 0, 0);
            }).error_code(),
            StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ends_with([&](Puller* p) {
              p->Open(fingerprint(), v1::MODULE_VISION, 0, 0, 0, UINT64_MAX);
            }).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

// The status of a call whose only message is `request`.
grpc::Status GetEnd(v1::LoaderService::Stub* stub,
                    const v1::PullRequest& request) {
  grpc::ClientContext context;
  const auto stream = stub->Pull(&context);
  stream->Write(request);
  v1::PullResponse message;
  while (stream->Read(&message)) {
  }
  return stream->Finish();
}

TEST_F(PullCallTest, RefusesInvalidLanes) {
  v1::PullRequest request;
  v1::PullRequest::Open& open = *request.mutable_open();
  open.mutable_role()->set_module(v1::MODULE_VISION);
  open.set_fingerprint(fingerprint());
  open.set_lanes(kMaxLanes + 1);
  open.set_ticket(std::string(kLaneTicketBytes, 't'));
  EXPECT_EQ(GetEnd(stub_.get(), request).error_code(),
            StatusCode::INVALID_ARGUMENT);
  open.set_lanes(2);
  open.set_ticket("short");
  EXPECT_EQ(GetEnd(stub_.get(), request).error_code(),
            StatusCode::INVALID_ARGUMENT);
  request.mutable_join()->set_ticket(std::string(kLaneTicketBytes, 't'));
  request.mutable_join()->set_lane(1);
  EXPECT_EQ(GetEnd(stub_.get(), request).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(PullCallTest, RefusesAShareWithoutPartsOrWithTooMany) {
  v1::PullRequest request;
  v1::PullRequest::Open& open = *request.mutable_open();
  open.mutable_role()->set_module(v1::MODULE_VISION);
  open.set_fingerprint(fingerprint());
  open.mutable_share();
  EXPECT_EQ(GetEnd(stub_.get(), request).error_code(),
            StatusCode::INVALID_ARGUMENT);
  for (size_t i = 0; i <= BlockShare::kMaxParts; ++i) {
    open.mutable_share()->add_parts();
  }
  EXPECT_EQ(GetEnd(stub_.get(), request).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

// Chunks alternate between the lanes. A lane that joins twice, or whose number
// the Pull does not have, is refused and does no harm. The Pull's end ends its
// lanes.
TEST_F(PullCallTest, SendsChunksOverLanesInTurn) {
  v1::PullRequest request;
  v1::PullRequest::Open& open = *request.mutable_open();
  open.mutable_role()->set_module(v1::MODULE_VISION);
  open.set_fingerprint(fingerprint());
  open.set_credit(0);  // each block waits for credit: the Pull stays open
  open.set_steps(2);
  open.set_lanes(2);
  open.set_ticket(std::string(kLaneTicketBytes, 't'));
  grpc::ClientContext contexts[2];
  const auto main = stub_->Pull(&contexts[0]);
  main->Write(request);
  v1::PullResponse message;
  ASSERT_TRUE(main->Read(&message));
  EXPECT_EQ(message.begin().lanes(), 2u);
  const auto chunks_of = [](const v1::PullResponse::Begin& begin) {
    return (begin.bytes() + kMaxChunkBytes - 1) / kMaxChunkBytes;
  };
  const v1::PullResponse::Begin first = message.begin();
  uint64_t chunks = chunks_of(first);

  v1::PullRequest join;
  join.mutable_join()->set_ticket(open.ticket());
  for (const uint32_t lane : {0, 2}) {
    join.mutable_join()->set_lane(lane);
    EXPECT_EQ(GetEnd(stub_.get(), join).error_code(), StatusCode::NOT_FOUND);
  }
  join.mutable_join()->set_lane(1);
  const auto side = stub_->Pull(&contexts[1]);
  side->Write(join);
  uint64_t over_main = 0, over_side = 0;
  ASSERT_TRUE(side->Read(&message));
  over_side += message.has_chunk();
  EXPECT_EQ(GetEnd(stub_.get(), join).error_code(), StatusCode::NOT_FOUND);
  const auto grant = [&main](const v1::PullResponse::Begin& begin) {
    v1::PullRequest credit;
    credit.mutable_credit()->set_bytes(begin.bytes());
    main->Write(credit);
  };
  grant(first);
  while (main->Read(&message)) {
    over_main += message.has_chunk();
    if (!message.has_begin()) continue;
    chunks += chunks_of(message.begin());
    grant(message.begin());
  }
  while (side->Read(&message)) over_side += message.has_chunk();
  EXPECT_GE(chunks, 4u);
  EXPECT_EQ(over_main, (chunks + 1) / 2);
  EXPECT_EQ(over_side, chunks / 2);
  EXPECT_TRUE(main->Finish().ok());
  EXPECT_TRUE(side->Finish().ok());
}

TEST_F(PullCallTest, ALaneThatLeavesEndsItsPull) {
  v1::PullRequest request;
  v1::PullRequest::Open& open = *request.mutable_open();
  open.mutable_role()->set_module(v1::MODULE_VISION);
  open.set_fingerprint(fingerprint());
  open.set_credit(kPlenty);
  open.set_lanes(2);
  open.set_ticket(std::string(kLaneTicketBytes, 't'));
  grpc::ClientContext contexts[2];
  const auto main = stub_->Pull(&contexts[0]);
  main->Write(request);
  v1::PullRequest join;
  join.mutable_join()->set_ticket(open.ticket());
  join.mutable_join()->set_lane(1);
  v1::PullResponse message;
  ASSERT_TRUE(main->Read(&message));  // the Pull is registered
  const auto side = stub_->Pull(&contexts[1]);
  side->Write(join);
  ASSERT_TRUE(side->Read(&message));  // the lane has joined
  contexts[1].TryCancel();
  while (main->Read(&message)) {
  }
  EXPECT_EQ(main->Finish().error_code(), StatusCode::CANCELLED);
  side->Finish();
}

// A second service over the same loader, with limits of its own.
class LimitedPullsTest : public PullCallTest {
 protected:
  void Serve(const PullLimits::Settings& limits) {
    limited_ = std::make_unique<LoaderServiceImpl>(
        "me", scheduler_.get(), loader_.get(), &calls_, limits);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(limited_.get());
    limited_server_ = builder.BuildAndStart();
    stub_ = v1::LoaderService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                            grpc::InsecureChannelCredentials()));
  }
  ~LimitedPullsTest() override {
    limited_server_->Shutdown(std::chrono::system_clock::now());
  }

  std::unique_ptr<LoaderServiceImpl> limited_;
  std::unique_ptr<grpc::Server> limited_server_;
};

TEST_F(LimitedPullsTest, RefusesTooManyPulls) {
  Serve({.most = 65'536, .most_a_client = 1});
  Puller first(stub_.get());
  first.Open(fingerprint(), v1::MODULE_VISION, 0, 1, 0);
  EXPECT_FALSE(first.NextBlock().empty());
  const grpc::Status refused = Puller(stub_.get()).Finish();
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("serve.max_streams_per_client is 1"));
}

// Four Pulls may be silent: of nine five give way, and a sixth to the Pull that
// speaks. The server may see the nine in any order, so not asked is which.
TEST_F(LimitedPullsTest, SilentPullsGiveWay) {
  Serve({.most_silent = 4});
  Mutex mutex;
  CondVar ended;
  std::vector<StatusCode> ends;
  const auto await = [&](size_t count) {
    MutexLock lock(&mutex);
    while (ends.size() < count) ended.Wait(&mutex);
  };
  std::vector<std::unique_ptr<Puller>> silent;
  std::vector<std::thread> threads;
  for (int i = 0; i < 9; ++i) {
    silent.push_back(std::make_unique<Puller>(stub_.get()));
    threads.emplace_back([&, puller = silent.back().get()] {
      const StatusCode end = puller->Finish().error_code();
      MutexLock lock(&mutex);
      ends.push_back(end);
      ended.NotifyAll();
    });
  }
  await(5);
  Puller speaks(stub_.get());
  speaks.Open(fingerprint(), v1::MODULE_VISION, 0, 1, kPlenty);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(speaks.NextBlock().empty());
  EXPECT_TRUE(speaks.Finish().ok());
  await(6);
  for (const auto& puller : silent) puller->Cancel();
  for (std::thread& thread : threads) thread.join();
  std::vector<StatusCode> expected(6, StatusCode::ABORTED);
  expected.resize(9, StatusCode::CANCELLED);
  EXPECT_EQ(ends, expected);
}

// Pulls that have credit for everything and are not read, so writes to them
// never end. Of 64 of one role eight are left, and nothing of the others: the
// client may have only 20.
TEST_F(LimitedPullsTest, PullsThatAreNotReadGiveWay) {
  Serve({.most_a_client = 20, .last_write = absl::ZeroDuration()});
  std::vector<std::unique_ptr<Puller>> unread;
  while (unread.size() < 64) {
    auto puller = std::make_unique<Puller>(stub_.get());
    puller->Open(fingerprint(), v1::MODULE_VISION, 0, 0, kPlenty,
                 10 * unread.size());
    if (puller->ReadBegin()) {
      unread.push_back(std::move(puller));
      continue;
    }
    // Those that have given way are not done yet.
    const grpc::Status refused = puller->Finish();
    ASSERT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED)
        << refused.error_message();
  }
  EXPECT_EQ(loader_->open_streams(), 8);
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    Puller other(stub_.get());
    other.Open(fingerprint(), module, 1, 2, 1 << 20);
    for (int i = 0; i < 4; ++i) {
      Check(other.NextBlock(), module, 1, i / 2, i % 2);
      other.Credit(other.begin().bytes());
    }
    EXPECT_TRUE(other.Finish().ok());
  }
}

// A client that has ended its side gets the blocks that its credit covers, and
// then an error rather than silence.
TEST_F(PullCallTest, EndsThePullOfAClientThatEndsItsSide) {
  Puller puller(stub_.get());
  puller.Open(fingerprint(), v1::MODULE_VISION, 0, 2, 0);
  puller.WritesDone();
  EXPECT_FALSE(puller.NextBlock().empty());
  const grpc::Status status = puller.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("credit"));
}

TEST_F(PullCallTest, SendsTheBlocksBeforeABadSample) {
  builder_->FailAt(kGlobal + 1);
  Puller puller(stub_.get());
  puller.Open(fingerprint(), v1::MODULE_VISION, 0, 0, kPlenty);
  EXPECT_FALSE(puller.NextBlock().empty());
  EXPECT_FALSE(puller.NextBlock().empty());
  EXPECT_TRUE(puller.NextBlock().empty());
  const grpc::Status status = puller.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::DATA_LOSS);
  EXPECT_THAT(status.error_message(), HasSubstr("position 17"));
}

TEST_F(PullCallTest, MayBeCancelledAtAnyMoment) {
  for (int taken = 0; taken < 4; ++taken) {
    for (const uint64_t credit : {uint64_t{0}, kPlenty}) {
      Puller puller(stub_.get());
      puller.Open(fingerprint(), v1::MODULE_VISION, 0, 0, credit);
      for (int i = 0; i < taken; ++i) {
        EXPECT_FALSE(puller.NextBlock().empty());
        if (credit == 0) puller.Credit(puller.begin().bytes());
      }
      puller.Cancel();
      EXPECT_EQ(puller.Finish().error_code(), StatusCode::CANCELLED);
    }
  }
  { Puller before_open(stub_.get()); }
  // Shutdown waits for all calls; none of them may be left.
  server_->Shutdown();
  EXPECT_EQ(loader_->open_streams(), 0);
}

TEST_F(PullCallTest, MayBeCancelledWhileASampleIsBuilt) {
  builder_->ShutGate();
  {
    Puller puller(stub_.get());
    puller.Open(fingerprint(), v1::MODULE_VISION, 0, 0, kPlenty);
    builder_->AwaitWorking(2);
  }
  server_->Shutdown();
  EXPECT_EQ(loader_->open_streams(), 0);
  builder_->OpenGate();
}

TEST_F(PullCallTest, DrainEndsPullsInEveryState) {
  Puller begun(stub_.get());  // waits for credit to send a block
  begun.Open(fingerprint(), v1::MODULE_VISION, 0, 0, 0);
  ASSERT_FALSE(begun.NextBlock().empty());
  Puller sending(stub_.get());  // more was sent than was read
  sending.Open(fingerprint(), v1::MODULE_VISION, 1, 0, kPlenty);
  ASSERT_FALSE(sending.NextBlock().empty());
  builder_->ShutGate();
  Puller waiting(stub_.get());  // waits for a sample
  waiting.Open(fingerprint(), v1::MODULE_LANGUAGE, 0, 0, kPlenty, 100);
  builder_->AwaitWorking(2);
  loader_->Drain();
  builder_->OpenGate();
  while (!sending.NextBlock().empty()) {  // whole blocks, then the end
  }
  for (Puller* puller : {&begun, &sending, &waiting}) {
    EXPECT_EQ(puller->Finish().error_code(), StatusCode::UNAVAILABLE);
  }
  Puller late(stub_.get());
  late.Open(fingerprint(), v1::MODULE_VISION, 0, 0, kPlenty);
  EXPECT_EQ(late.Finish().error_code(), StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace ballast
