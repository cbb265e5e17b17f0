#include "server/service/pull_session.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr char kHash[] = "0123456789abcdef0123456789abcdef";

uint8_t FormulaByte(uint64_t step, uint64_t offset) {
  return static_cast<uint8_t>(step * 13 + offset * 7 + offset / 256);
}

std::unique_ptr<Block> MakeBlock(uint64_t step, uint64_t bytes,
                                 int* released = nullptr) {
  static const auto* pool = new auto(std::make_shared<BlockPool>(64 * kMiB));
  auto block = std::make_unique<Block>(
      BlockId{step, 2}, *pool, *(*pool)->Take(bytes), bytes, [released] {
        if (released != nullptr) ++*released;
      });
  for (uint64_t i = 0; i < bytes; ++i) {
    block->mutable_bytes()[i] = FormulaByte(step, i);
  }
  block->set_checksum(step + 1000);
  return block;
}

v1::PullRequest OpenRequest(uint64_t credit,
                            const std::string& fingerprint = kHash) {
  v1::PullRequest request;
  request.mutable_open()->set_fingerprint(fingerprint);
  request.mutable_open()->set_credit(credit);
  return request;
}

v1::PullRequest CreditRequest(uint64_t bytes) {
  v1::PullRequest request;
  request.mutable_credit()->set_bytes(bytes);
  return request;
}

PullSession MakeSession() {
  v1::Fingerprint server;
  server.set_hash(kHash);
  return PullSession(server);
}

// Takes the messages of one block and checks them.
void ExpectBlock(PullSession* session, uint64_t step, uint64_t bytes) {
  v1::PullResponse message;
  ASSERT_TRUE(session->NextMessage(&message));
  ASSERT_TRUE(message.has_begin());
  EXPECT_EQ(message.begin().step(), step);
  EXPECT_EQ(message.begin().micro_batch(), 2);
  EXPECT_EQ(message.begin().bytes(), bytes);
  EXPECT_EQ(message.begin().checksum(), step + 1000);
  uint64_t offset = 0;
  while (offset < bytes) {
    EXPECT_FALSE(session->WantsBlock());
    ASSERT_TRUE(session->NextMessage(&message));
    ASSERT_TRUE(message.has_chunk());
    const std::string& data = message.chunk().data();
    EXPECT_EQ(data.size(), std::min(kMiB, bytes - offset));
    for (const char byte : data) {
      ASSERT_EQ(static_cast<uint8_t>(byte), FormulaByte(step, offset));
      ++offset;
    }
  }
  EXPECT_EQ(offset, bytes);
  EXPECT_TRUE(session->WantsBlock());
}

TEST(CreditWindowTest, ABlockBeginsWhenTheUnspentCreditCoversIt) {
  CreditWindow credit(100);
  EXPECT_TRUE(credit.MayBegin(100));
  credit.Begin(60);
  EXPECT_TRUE(credit.MayBegin(40));
  EXPECT_FALSE(credit.MayBegin(41));
  ASSERT_TRUE(credit.Return(20).ok());
  EXPECT_TRUE(credit.MayBegin(60));
  EXPECT_FALSE(credit.MayBegin(61));
}

TEST(CreditWindowTest, OrWhenTheClientHoldsNothing) {
  CreditWindow credit(100);
  EXPECT_TRUE(credit.MayBegin(UINT64_MAX));
  credit.Begin(1000);
  EXPECT_FALSE(credit.MayBegin(1));
  ASSERT_TRUE(credit.Return(999).ok());
  EXPECT_FALSE(credit.MayBegin(100));  // one byte is still held
  EXPECT_TRUE(credit.MayBegin(99));
  ASSERT_TRUE(credit.Return(1).ok());
  EXPECT_TRUE(credit.MayBegin(1000));
}

TEST(CreditWindowTest, WithoutAnyCreditBlocksPassOneByOne) {
  CreditWindow credit(0);
  EXPECT_TRUE(credit.MayBegin(5));
  credit.Begin(5);
  EXPECT_FALSE(credit.MayBegin(5));
  ASSERT_TRUE(credit.Return(5).ok());
  EXPECT_TRUE(credit.MayBegin(5));
}

TEST(CreditWindowTest, MoreThanIsHeldCannotBeReturned) {
  CreditWindow credit(100);
  credit.Begin(10);
  const absl::Status status = credit.Return(11);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("11, more than the 10"));
  EXPECT_FALSE(credit.Return(UINT64_MAX).ok());
  EXPECT_EQ(credit.held(), 10);
}

TEST(PullSessionTest, ABlockIsABeginAndItsChunks) {
  for (const uint64_t bytes :
       {uint64_t{1}, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB}) {
    PullSession session = MakeSession();
    EXPECT_FALSE(session.WantsBlock());
    ASSERT_TRUE(session.OnRequest(OpenRequest(bytes)).ok());
    EXPECT_TRUE(session.WantsBlock());
    session.OnBlock(MakeBlock(7, bytes));
    ExpectBlock(&session, 7, bytes);
  }
}

TEST(PullSessionTest, TheNextBlockWaitsForCredit) {
  PullSession session = MakeSession();
  ASSERT_TRUE(session.OnRequest(OpenRequest(100)).ok());
  session.OnBlock(MakeBlock(1, 80));
  ExpectBlock(&session, 1, 80);
  session.OnBlock(MakeBlock(2, 80));
  EXPECT_TRUE(session.WaitsForCredit());
  v1::PullResponse message;
  EXPECT_FALSE(session.NextMessage(&message));
  ASSERT_TRUE(session.OnRequest(CreditRequest(59)).ok());
  EXPECT_FALSE(session.NextMessage(&message));
  ASSERT_TRUE(session.OnRequest(CreditRequest(1)).ok());
  EXPECT_FALSE(session.WaitsForCredit());
  ExpectBlock(&session, 2, 80);
}

TEST(PullSessionTest, ABlockIsFreedWithItsLastChunk) {
  int released = 0;
  PullSession session = MakeSession();
  ASSERT_TRUE(session.OnRequest(OpenRequest(4 * kMiB)).ok());
  session.OnBlock(MakeBlock(1, kMiB + 5, &released));
  v1::PullResponse message;
  ASSERT_TRUE(session.NextMessage(&message));
  ASSERT_TRUE(session.NextMessage(&message));
  EXPECT_EQ(released, 0);
  ASSERT_TRUE(session.NextMessage(&message));
  EXPECT_EQ(released, 1);
}

TEST(PullSessionTest, RefusesWhatIsOutOfOrder) {
  PullSession session = MakeSession();
  EXPECT_EQ(session.OnRequest(CreditRequest(0)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.OnRequest(v1::PullRequest()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.open(), nullptr);
  ASSERT_TRUE(session.OnRequest(OpenRequest(1)).ok());
  EXPECT_EQ(session.OnRequest(OpenRequest(1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.OnRequest(CreditRequest(1)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PullSessionTest, RefusesAnotherFingerprint) {
  const std::string other(32, 'f');
  absl::Status status = MakeSession().OnRequest(OpenRequest(1, other));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kHash));
  EXPECT_THAT(std::string(status.message()), HasSubstr(other));
  status = MakeSession().OnRequest(OpenRequest(1, ""));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kHash));
}

}  // namespace
}  // namespace ballast
