// Blocks in a server's shared memory, as users get them from
// LoaderClient::OpenPull, against a real gRPC server that follows a script, and
// a real arena.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "client/loader_client.h"
#include "common/mutex.h"
#include "proto/block/block_layout.h"
#include "server/delivery/arena.h"
#include "tests/fakes/fake_loader_service.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMemoryMiB = uint64_t{1} << 20;
constexpr uint64_t kOffset = 8192 + 256;
constexpr uint64_t kBytes = 5000;

class SharedMemoryTest : public ::testing::Test {
 protected:
  SharedMemoryTest() {
    std::filesystem::create_directories(directory_);
    arena_ = *Arena::CreateShared(directory_, 4 * kMemoryMiB);
    EXPECT_TRUE(arena_->EnsureReserved(arena_->end()).ok());
  }

  // Writes block number `i` and returns the message that lends it.
  v1::PullResponse Write(uint64_t i) {
    const uint64_t offset = kOffset + i * 8192;
    std::memset(arena_->at(offset), static_cast<int>(i + 1), kBytes);
    SetStamp(arena_->stamp(offset), 100 + i);
    v1::PullResponse message;
    v1::PullResponse::Shared& shared = *message.mutable_shared();
    shared.set_step(7);
    shared.set_micro_batch(i);
    shared.set_bytes(kBytes);
    shared.set_checksum(XXH3_64bits(arena_->at(offset), kBytes));
    shared.set_offset(offset);
    shared.set_generation(100 + i);
    return message;
  }

  v1::PullResponse Offer() const {
    v1::PullResponse message;
    message.mutable_arena()->set_path(arena_->identity()->path);
    message.mutable_arena()->set_bytes(arena_->identity()->bytes);
    message.mutable_arena()->set_id(arena_->identity()->id);
    return message;
  }

  // Offers the arena; true if the client has mapped it.
  bool Handshake(FakePull* pull) {
    if (!pull->open().accepts_arena() || !pull->Send(Offer())) return false;
    const auto answer = pull->Receive();
    return answer.has_value() && answer->has_mapped() &&
           answer->mapped().nonce() == arena_->identity()->nonce;
  }

  std::unique_ptr<BatchFetcher> Open(const FetchRequest& request = {}) {
    auto fetcher = client_->OpenPull(request);
    EXPECT_TRUE(fetcher.ok()) << fetcher.status();
    return *std::move(fetcher);
  }

  static void ExpectBlock(const FetchedBlock& block, uint64_t i) {
    EXPECT_EQ(block.step(), 7u);
    EXPECT_EQ(block.micro_batch(), i);
    EXPECT_EQ(std::vector<uint8_t>(block.bytes().begin(), block.bytes().end()),
              std::vector<uint8_t>(kBytes, i + 1));
    EXPECT_TRUE(block.intact());
  }

  // Expects the client to refuse with `code` what `answer` sends after the
  // handshake.
  void ExpectRefused(const v1::PullResponse& answer, const std::string& text,
                     FetchRequest request = {},
                     absl::StatusCode code = absl::StatusCode::kInternal) {
    server_->AddPull([&](FakePull* pull) {
      EXPECT_TRUE(Handshake(pull));
      pull->Send(answer);
      pull->AwaitGone();
      return absl::OkStatus();
    });
    const absl::Status status = Open(request)->Fetch().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  const std::string directory_ = ::testing::TempDir() + "/shared";
  std::unique_ptr<Arena> arena_;
  const std::unique_ptr<FakeLoaderServer> server_ = FakeLoaderServer::Start();
  const std::unique_ptr<LoaderClient> client_ =
      LoaderClient::Create(server_->address());
};

TEST_F(SharedMemoryTest, BlocksLieInOneRegionOfTheServer) {
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    pull->Send(Write(1));
    return absl::OkStatus();
  });
  const auto fetcher = Open();
  const auto first = fetcher->Fetch();
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = fetcher->Fetch();
  ASSERT_TRUE(second.ok()) << second.status();
  ExpectBlock(**first, 0);
  ExpectBlock(**second, 1);
  const auto region = (*first)->region();
  ASSERT_NE(region, nullptr);
  EXPECT_EQ((*second)->region(), region);
  EXPECT_TRUE(region->read_only());
  EXPECT_EQ(region->bytes().size(), 4 * kMemoryMiB);
  EXPECT_EQ((*first)->bytes().data(), region->bytes().data() + kOffset);
}

TEST_F(SharedMemoryTest, EachBlockIsReturnedByItsName) {
  std::vector<uint64_t> returned;
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    for (uint64_t i = 0; i < 3; ++i) pull->Send(Write(i));
    while (returned.size() < 3) {
      const auto request = pull->Receive();
      if (!request.has_value()) break;
      EXPECT_EQ(request->credit().bytes(), 0u);
      returned.insert(returned.end(), request->credit().blocks().begin(),
                      request->credit().blocks().end());
    }
    return absl::OkStatus();
  });
  const auto fetcher = Open();
  std::vector<std::unique_ptr<FetchedBlock>> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(*fetcher->Fetch());
  for (const int i : {2, 0, 1}) blocks[i].reset();
  EXPECT_TRUE(absl::IsOutOfRange(fetcher->Fetch().status()));
  EXPECT_THAT(returned, ::testing::ElementsAre(102, 100, 101));
}

// The fetcher is destroyed while the block is read: the call lasts as long as
// the block.
TEST_F(SharedMemoryTest, TheCallLastsAsLongAsItsBlocks) {
  Mutex mutex;
  CondVar changed;
  bool stopped = false, let_go = false, ended = false;
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    const auto stop = pull->Receive();
    EXPECT_TRUE(stop.has_value() && stop->has_stop());
    {
      MutexLock lock(&mutex);
      stopped = true;
      changed.NotifyAll();
    }
    EXPECT_FALSE(pull->Receive().has_value());
    MutexLock lock(&mutex);
    EXPECT_TRUE(let_go);
    ended = true;
    changed.NotifyAll();
    return absl::OkStatus();
  });
  auto fetcher = Open();
  auto block = fetcher->Fetch();
  ASSERT_TRUE(block.ok()) << block.status();
  fetcher.reset();
  {
    MutexLock lock(&mutex);
    while (!stopped) changed.Wait(&mutex);
    let_go = true;
  }
  ExpectBlock(**block, 0);
  block->reset();
  MutexLock lock(&mutex);
  while (!ended) changed.Wait(&mutex);
}

TEST_F(SharedMemoryTest, CancelEndsAFetchWhileABlockIsHeld) {
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  const auto fetcher = Open();
  const auto block = fetcher->Fetch();
  ASSERT_TRUE(block.ok()) << block.status();
  std::thread canceller([&] { fetcher->Cancel(); });
  EXPECT_TRUE(absl::IsCancelled(fetcher->Fetch().status()));
  canceller.join();
  ExpectBlock(**block, 0);
}

TEST_F(SharedMemoryTest, TheEndComesWhileABlockIsHeld) {
  for (const auto& [code, expected] :
       std::vector<std::pair<int, absl::StatusCode>>{
           {0, absl::StatusCode::kOutOfRange},
           {15, absl::StatusCode::kDataLoss}}) {
    server_->AddPull([&, code = code](FakePull* pull) {
      EXPECT_TRUE(Handshake(pull));
      pull->Send(Write(0));
      v1::PullResponse end;
      end.mutable_end()->set_code(code);
      end.mutable_end()->set_message("why");
      pull->Send(end);
      pull->AwaitGone();
      return absl::OkStatus();
    });
    const auto fetcher = Open();
    const auto block = fetcher->Fetch();
    ASSERT_TRUE(block.ok()) << block.status();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(fetcher->Fetch().status().code(), expected);
    }
    ExpectBlock(**block, 0);
  }
}

// A server that has given up the connection reuses the memory.
TEST_F(SharedMemoryTest, AnOverwrittenBlockIsDetected) {
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    return absl::UnavailableError("it was silent for too long");
  });
  const auto fetcher = Open();
  const auto block = fetcher->Fetch();
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(absl::IsUnavailable(fetcher->Fetch().status()));
  ExpectBlock(**block, 0);
  EXPECT_TRUE(CheckIntact(**block).ok());
  SetStamp(arena_->stamp(kOffset), 0);
  EXPECT_FALSE((*block)->intact());
  EXPECT_THAT(std::string(CheckIntact(**block).message()),
              HasSubstr("step 7 micro-batch 0 was overwritten"));
  // The next block at that place is not taken for it either.
  SetStamp(arena_->stamp(kOffset), 555);
  EXPECT_FALSE((*block)->intact());
}

// The pages stay after the server is gone.
TEST_F(SharedMemoryTest, BlocksOutliveTheServer) {
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    return absl::OkStatus();
  });
  const auto block = Open()->Fetch();
  ASSERT_TRUE(block.ok()) << block.status();
  arena_.reset();
  ExpectBlock(**block, 0);
}

TEST_F(SharedMemoryTest, FallsBackToTheStreamAndLogsWhyOnce) {
  const std::vector<uint8_t> content(3000, 9);
  const auto script = [&](FakePull* pull) {
    v1::PullResponse offer = Offer();
    offer.mutable_arena()->set_path(directory_ + "/elsewhere");
    EXPECT_TRUE(pull->open().accepts_arena());
    pull->Send(offer);
    const auto answer = pull->Receive();
    EXPECT_TRUE(answer.has_value() && answer->has_mapped());
    EXPECT_EQ(answer->mapped().nonce(), "");
    pull->SendBlock(0, 0, content);
    return absl::OkStatus();
  };
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    server_->AddPull(script);
    const auto fetcher = Open();
    const auto block = fetcher->Fetch();
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ((*block)->bytes(), absl::MakeConstSpan(content));
    EXPECT_FALSE((*block)->region()->read_only());
    EXPECT_TRUE((*block)->intact());
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(directory_ + "/elsewhere"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST_F(SharedMemoryTest, SharedAndStreamedBlocksMayAlternate) {
  const std::vector<uint8_t> content(kBytes, 2);
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    pull->SendBlock(7, 1, content);
    pull->Send(Write(2));
    return absl::OkStatus();
  });
  const auto fetcher = Open();
  for (uint64_t i = 0; i < 3; ++i) {
    const auto block = fetcher->Fetch();
    ASSERT_TRUE(block.ok()) << block.status();
    ExpectBlock(**block, i);
    EXPECT_EQ((*block)->region()->read_only(), i != 1);
  }
}

TEST_F(SharedMemoryTest, AClientMayDeclineSharedMemory) {
  server_->AddPull([&](FakePull* pull) {
    EXPECT_FALSE(pull->open().accepts_arena());
    return absl::OkStatus();
  });
  FetchRequest request;
  request.accept_shared_memory = false;
  EXPECT_TRUE(absl::IsOutOfRange(Open(request)->Fetch().status()));
}

TEST_F(SharedMemoryTest, AsksForNoChecksumThatItDoesNotCompare) {
  for (const bool verifies : {false, true}) {
    server_->AddPull([&](FakePull* pull) {
      EXPECT_EQ(pull->open().skips_shared_checksum(), !verifies);
      return absl::OkStatus();
    });
    FetchRequest request;
    request.verify_shared_memory = verifies;
    EXPECT_TRUE(absl::IsOutOfRange(Open(request)->Fetch().status()));
  }
}

TEST_F(SharedMemoryTest, VerifiesChecksumsOnRequest) {
  v1::PullResponse damaged = Write(0);
  damaged.mutable_shared()->set_checksum(1);
  FetchRequest request;
  request.verify_shared_memory = true;
  ExpectRefused(damaged, "step 7 micro-batch 0 has checksum", request,
                absl::StatusCode::kDataLoss);
}

TEST_F(SharedMemoryTest, RefusesHostileServers) {
  v1::PullResponse message = Write(0);
  message.mutable_shared()->set_offset(4 * kMemoryMiB);
  ExpectRefused(message, "placed 5000 bytes at 4194304");
  message = Write(0);
  message.mutable_shared()->set_bytes(uint64_t{1} << 60);
  ExpectRefused(message, "announced 1152921504606846976 bytes");
  ExpectRefused(Offer(), "offered its arena twice");
  ExpectRefused(v1::PullResponse(), "empty or unknown");
  // Without a mapping.
  server_->AddPull([&](FakePull* pull) {
    pull->Send(Write(0));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(Open()->Fetch().status().message()),
              HasSubstr("an arena that is not mapped"));
  // Within a block that comes in chunks.
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->SendBegin(0, 0, 100, 0);
    pull->Send(Write(0));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(Open()->Fetch().status().message()),
              HasSubstr("something else within step 0"));
}

TEST_F(SharedMemoryTest, RefusesOverdrawnCredit) {
  server_->AddPull([&](FakePull* pull) {
    EXPECT_TRUE(Handshake(pull));
    pull->Send(Write(0));
    pull->Send(Write(1));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  FetchRequest request;
  request.max_bytes = 2 * kBytes - 1;
  const auto fetcher = Open(request);
  const auto held = fetcher->Fetch();
  ASSERT_TRUE(held.ok()) << held.status();
  const absl::Status status = fetcher->Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("without the credit for it, which is 4999"));
}

}  // namespace
}  // namespace ballast
