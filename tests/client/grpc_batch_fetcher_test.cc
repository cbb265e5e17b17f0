// The fetcher from LoaderClient::OpenPull, as users get it, against a real gRPC
// server that follows a script.
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/batch_fetcher.h"
#include "client/batch_stream.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/formula_block.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kFetchedMiB = uint64_t{1} << 20;

// Bytes that differ between blocks and within each.
std::vector<uint8_t> Content(size_t size, uint8_t first) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<uint8_t>(first + i + i / 256);
  }
  return bytes;
}

class GrpcBatchFetcherTest : public ::testing::Test {
 protected:
  std::unique_ptr<BatchFetcher> Open(const FetchRequest& request = {}) {
    auto fetcher = client_->OpenPull(request);
    EXPECT_TRUE(fetcher.ok()) << fetcher.status();
    return *std::move(fetcher);
  }

  // Expects the error instead of the next block of a pull of `script`.
  void ExpectError(FakeLoaderServer::PullScript script, absl::StatusCode code,
                   const std::string& text, const FetchRequest& request = {}) {
    server_->AddPull(std::move(script));
    const auto fetcher = Open(request);
    for (int i = 0; i < 2; ++i) {  // final
      const absl::Status status = fetcher->Fetch().status();
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("server " + server_->address()));
    }
  }

  const std::unique_ptr<FakeLoaderServer> server_ = FakeLoaderServer::Start();
  const std::unique_ptr<LoaderClient> client_ =
      LoaderClient::Create(server_->address());
};

TEST_F(GrpcBatchFetcherTest, FetchesBlocksInChunks) {
  const std::vector<uint8_t> large = Content(3 * kFetchedMiB + 5, 1);
  const std::vector<uint8_t> small = Content(700, 2);
  v1::PullRequest::Open open;
  server_->AddPull([&](FakePull* pull) {
    open = pull->open();
    pull->SendBlock(7, 1, large);
    pull->SendBlock(8, 0, small, 300);
    return absl::OkStatus();
  });
  FetchRequest request;
  request.role.set_module(v1::MODULE_LANGUAGE);
  request.role.set_dp_rank(3);
  request.step = 7;
  request.micro_batch = 1;
  request.steps = 2;
  request.fingerprint = "f";
  request.max_bytes = 5 * kFetchedMiB;
  const auto fetcher = Open(request);

  const auto first = fetcher->Fetch();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->step(), 7u);
  EXPECT_EQ((*first)->micro_batch(), 1u);
  EXPECT_EQ((*first)->bytes(), absl::MakeConstSpan(large));
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*first)->bytes().data()) % 256, 0u);
  const auto second = fetcher->Fetch();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->step(), 8u);
  EXPECT_EQ((*second)->bytes(), absl::MakeConstSpan(small));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fetcher->Fetch().status().code(), absl::StatusCode::kOutOfRange);
  }

  EXPECT_EQ(open.role().module(), v1::MODULE_LANGUAGE);
  EXPECT_EQ(open.role().dp_rank(), 3u);
  EXPECT_EQ(open.step(), 7u);
  EXPECT_EQ(open.micro_batch(), 1u);
  EXPECT_EQ(open.steps(), 2u);
  EXPECT_EQ(open.fingerprint(), "f");
  EXPECT_EQ(open.credit(), 5 * kFetchedMiB);
}

// A server of an earlier version does not support lanes.
TEST_F(GrpcBatchFetcherTest, AServerMayUseOneLaneOnly) {
  const auto client =
      LoaderClient::CreateSecure(server_->address(), ChannelSecurity(), 3);
  const std::vector<uint8_t> large = Content(3 * kFetchedMiB + 5, 1);
  v1::PullRequest::Open open;
  server_->AddPull([&](FakePull* pull) {
    open = pull->open();
    pull->SendBlock(0, 0, large);
    return absl::OkStatus();
  });
  const auto fetcher = client->OpenPull({});
  const auto block = (*fetcher)->Fetch();
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ((*block)->bytes(), absl::MakeConstSpan(large));
  EXPECT_EQ(open.lanes(), 3u);
  EXPECT_EQ(open.ticket().size(), 16u);
}

// The fake knows no Pull that a lane joins, as a server that was started anew
// since. The rank's stream goes on, there or at another server.
TEST_F(GrpcBatchFetcherTest, ALaneOfAServerThatWasStartedAnewMayPass) {
  const auto client =
      LoaderClient::CreateSecure(server_->address(), ChannelSecurity(), 2);
  server_->AddPull([&](FakePull* pull) {
    v1::PullResponse begin;
    begin.mutable_begin()->set_bytes(2 * kFetchedMiB);
    begin.mutable_begin()->set_lanes(2);
    pull->Send(begin);
    pull->SendChunk(Content(kFetchedMiB, 1));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  const auto fetcher = client->OpenPull({});
  const absl::Status status = (*fetcher)->Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(GetFault(status), Fault::kPassing);
}

TEST_F(GrpcBatchFetcherTest, RefusesMoreLanesThanItAskedFor) {
  ExpectError(
      [](FakePull* pull) {
        v1::PullResponse begin;
        begin.mutable_begin()->set_bytes(100);
        begin.mutable_begin()->set_lanes(2);
        pull->Send(begin);
        pull->AwaitGone();
        return absl::OkStatus();
      },
      absl::StatusCode::kInternal, "over 2 lanes, wanted 1");
}

TEST_F(GrpcBatchFetcherTest, GrantsCreditWhenABlockIsDestroyed) {
  uint64_t first_credit = 0;
  uint64_t all_credit = 0;
  server_->AddPull([&](FakePull* pull) {
    pull->SendBlock(0, 0, Content(1000, 0));
    pull->SendBlock(0, 1, Content(500, 1));
    first_credit = pull->AwaitCredit(1);
    pull->SendBlock(0, 2, Content(300, 2));
    all_credit = pull->AwaitCredit(1800);
    return absl::OkStatus();
  });
  FetchRequest request;
  request.max_bytes = 1500;
  const auto fetcher = Open(request);
  auto first = fetcher->Fetch();
  auto second = fetcher->Fetch();
  ASSERT_TRUE(first.ok() && second.ok());
  second->reset();
  auto third = fetcher->Fetch();
  ASSERT_TRUE(third.ok()) << third.status();
  first->reset();
  third->reset();
  EXPECT_TRUE(absl::IsOutOfRange(fetcher->Fetch().status()));
  EXPECT_EQ(first_credit, 500u);
  EXPECT_EQ(all_credit, 1800u);
}

TEST_F(GrpcBatchFetcherTest, BlocksMayBeDestroyedOnManyThreads) {
  constexpr int kBlocks = 64;
  server_->AddPull([&](FakePull* pull) {
    for (int i = 0; i < kBlocks; ++i) {
      pull->SendBlock(i, 0, Content(100 + i, i));
    }
    uint64_t sum = 0;
    for (int i = 0; i < kBlocks; ++i) sum += 100 + i;
    return pull->AwaitCredit(sum) == sum ? absl::OkStatus()
                                         : absl::InternalError("credit is off");
  });
  const auto fetcher = Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < kBlocks; ++i) {
    auto block = fetcher->Fetch();
    ASSERT_TRUE(block.ok()) << block.status();
    threads.emplace_back(
        [block = *std::move(block)]() mutable { block.reset(); });
  }
  EXPECT_TRUE(absl::IsOutOfRange(fetcher->Fetch().status()));
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GrpcBatchFetcherTest, LargerThanTheWholeAllowancePassesAlone) {
  server_->AddPull([&](FakePull* pull) {
    pull->SendBlock(0, 0, Content(1000, 0));
    return absl::OkStatus();
  });
  FetchRequest request;
  request.max_bytes = 10;
  EXPECT_TRUE(Open(request)->Fetch().ok());
}

TEST_F(GrpcBatchFetcherTest, BlocksOutliveFetcherAndClient) {
  const std::vector<uint8_t> content = Content(5000, 9);
  server_->AddPull([&](FakePull* pull) {
    pull->SendBlock(0, 0, content);
    pull->AwaitGone();
    return absl::OkStatus();
  });
  std::unique_ptr<LoaderClient> client =
      LoaderClient::Create(server_->address());
  auto fetcher = client->OpenPull({});
  ASSERT_TRUE(fetcher.ok());
  auto block = (*fetcher)->Fetch();
  ASSERT_TRUE(block.ok()) << block.status();
  fetcher->reset();
  client.reset();
  EXPECT_EQ((*block)->bytes(), absl::MakeConstSpan(content));
  block->reset();
}

TEST_F(GrpcBatchFetcherTest, CancelEndsABlockedFetch) {
  const auto fetcher = Open();
  std::promise<void> begun;
  server_->AddPull([&](FakePull* pull) {
    pull->SendBegin(0, 0, 100, 0);
    begun.set_value();
    pull->AwaitGone();
    return absl::OkStatus();
  });
  std::thread canceller([&] {
    begun.get_future().wait();
    fetcher->Cancel();
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(fetcher->Fetch().status().code(), absl::StatusCode::kCancelled);
  }
  canceller.join();  // before the fetcher is destroyed
}

TEST_F(GrpcBatchFetcherTest, DestroyedWhileTheServerWaits) {
  server_->AddPull([&](FakePull* pull) {
    pull->AwaitGone();
    return absl::OkStatus();
  });
  Open();
}

TEST_F(GrpcBatchFetcherTest, ReturnsErrorsOfTheServer) {
  ExpectError([](FakePull*) { return absl::UnavailableError("drains"); },
              absl::StatusCode::kUnavailable, "drains");
  ExpectError([](FakePull*) { return absl::FailedPreconditionError("other"); },
              absl::StatusCode::kFailedPrecondition, "other");
  // Cancelled by the server: another may continue.
  ExpectError([](FakePull*) { return absl::CancelledError("stopped"); },
              absl::StatusCode::kUnavailable, "stopped");
}

TEST_F(GrpcBatchFetcherTest, AStreamThatEndsWithinABlockIsAnError) {
  const auto begin_then = [](absl::Status status) {
    return [status](FakePull* pull) {
      pull->SendBegin(4, 2, 100, 0);
      pull->SendChunk(Content(60, 0));
      return status;
    };
  };
  ExpectError(begin_then(absl::OkStatus()), absl::StatusCode::kInternal,
              "ended the stream within step 4 micro-batch 2, byte 60 of 100");
  ExpectError(begin_then(absl::UnavailableError("drains")),
              absl::StatusCode::kUnavailable, "drains");
}

TEST_F(GrpcBatchFetcherTest, RefusesADamagedBlock) {
  ExpectError(
      [](FakePull* pull) {
        pull->SendBegin(0, 0, 100, /*checksum=*/1);
        pull->SendChunk(Content(100, 0));
        pull->AwaitGone();
        return absl::OkStatus();
      },
      absl::StatusCode::kDataLoss, "has checksum");
}

TEST_F(GrpcBatchFetcherTest, RefusesHostileServers) {
  ExpectError(
      [](FakePull* pull) {
        pull->SendBegin(0, 0, uint64_t{1} << 60, 0);
        pull->AwaitGone();
        return absl::OkStatus();
      },
      absl::StatusCode::kInternal, "announced 1152921504606846976 bytes");
  ExpectError(
      [](FakePull* pull) {
        pull->SendBegin(0, 0, 2 * kFetchedMiB, 0);
        pull->SendChunk(Content(kFetchedMiB + 1, 0));
        pull->AwaitGone();
        return absl::OkStatus();
      },
      absl::StatusCode::kInternal, "a chunk of 1048577 bytes");
  // Too large for gRPC, which refuses it before reading it.
  ExpectError(
      [](FakePull* pull) {
        pull->SendBegin(0, 0, 16 * kFetchedMiB, 0);
        pull->SendChunk(Content(8 * kFetchedMiB, 0));
        pull->AwaitGone();
        return absl::OkStatus();
      },
      absl::StatusCode::kResourceExhausted, "larger than max");
  ExpectError(
      [](FakePull* pull) {
        pull->SendBegin(0, 0, 10, 0);
        pull->SendChunk(Content(11, 0));
        pull->AwaitGone();
        return absl::OkStatus();
      },
      absl::StatusCode::kInternal, "too many");
}

TEST_F(GrpcBatchFetcherTest, RefusesOverdrawnCredit) {
  server_->AddPull([](FakePull* pull) {
    pull->SendBlock(0, 0, Content(60, 0));
    pull->SendBlock(0, 1, Content(60, 0));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  FetchRequest request;
  request.max_bytes = 100;
  const auto fetcher = Open(request);
  const auto held = fetcher->Fetch();
  ASSERT_TRUE(held.ok()) << held.status();
  const absl::Status status = fetcher->Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("of 60 bytes without the credit for it, which is 40"));
}

TEST_F(GrpcBatchFetcherTest, WithoutAServerFetchFails) {
  const std::string address = "unix:/nonexistent/ballast.sock";
  const auto client = LoaderClient::Create(address);
  auto fetcher = client->OpenPull({});
  ASSERT_TRUE(fetcher.ok());
  const absl::Status status = (*fetcher)->Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("server " + address));
}

TEST_F(GrpcBatchFetcherTest, StreamResumesOverANewPull) {
  const std::vector<uint8_t> first = TinyBlock(5, 0, 2, 2000, 1);
  const std::vector<uint8_t> second = TinyBlock(5, 1, 2, 3000, 2);
  server_->AddPull([&](FakePull* pull) {
    pull->SendBlock(5, 0, first);
    pull->SendBegin(5, 1, second.size(), 0);
    pull->SendChunk(absl::MakeConstSpan(second).subspan(0, 1000));
    return absl::UnavailableError("drains");
  });
  v1::PullRequest::Open open;
  server_->AddPull([&](FakePull* pull) {
    open = pull->open();
    pull->SendBlock(5, 1, second);
    return absl::OkStatus();
  });
  BatchStream::Options options;
  options.request.step = 5;
  options.request.steps = 1;
  options.failover.first_backoff = absl::Nanoseconds(1);
  auto stream = BatchStream::Create(
      [&](size_t, const FetchRequest& request) {
        return client_->OpenPull(request);
      },
      options);
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (const auto* content : {&first, &second}) {
    const auto block = (*stream)->Next();
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ((*block)->bytes(), absl::MakeConstSpan(*content));
  }
  EXPECT_TRUE(absl::IsOutOfRange((*stream)->Next().status()));
  EXPECT_EQ(open.step(), 5u);
  EXPECT_EQ(open.micro_batch(), 1u);
}

}  // namespace
}  // namespace ballast
