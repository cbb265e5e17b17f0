#include "client/batch_fetcher.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMaxBlock = 1000;
constexpr uint64_t kMiB = uint64_t{1} << 20;

v1::PullResponse::Begin Begin(uint64_t bytes, uint64_t checksum = 0) {
  v1::PullResponse::Begin begin;
  begin.set_step(3);
  begin.set_micro_batch(1);
  begin.set_bytes(bytes);
  begin.set_checksum(checksum);
  return begin;
}

// A chunk of `data`, in two pieces and an empty one.
struct Chunk {
  explicit Chunk(std::string bytes) : data(std::move(bytes)) {
    const absl::Span<const uint8_t> all(
        reinterpret_cast<const uint8_t*>(data.data()), data.size());
    pieces = {
        all.subspan(0, data.size() / 2), {}, all.subspan(data.size() / 2)};
  }
  std::string data;
  std::vector<absl::Span<const uint8_t>> pieces;
};

uint64_t Checksum(const std::string& data) {
  return XXH3_64bits(data.data(), data.size());
}

class BlockAssemblerTest : public ::testing::Test {
 protected:
  absl::Status Add(const v1::PullResponse::Begin& begin, uint64_t allowance) {
    return assembler_.Begin(begin, allowance);
  }
  absl::Status Add(const Chunk& chunk, uint64_t) {
    return assembler_.AddChunk(chunk.pieces);
  }
  // Adds a message that must be accepted.
  template <typename Message>
  void Accept(const Message& message) {
    const absl::Status status = Add(message, kMaxBlock);
    EXPECT_TRUE(status.ok()) << status;
  }
  template <typename Message>
  void Refuse(const Message& message, absl::StatusCode code,
              const std::string& text, uint64_t allowance = kMaxBlock) {
    const absl::Status status = Add(message, allowance);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  BufferPool pool_{4 * kMaxBlock};
  BlockAssembler assembler_{kMaxBlock, &pool_};
};

TEST_F(BlockAssemblerTest, PutsChunksTogether) {
  for (const std::string data : {"hello, world", "x"}) {
    Accept(Begin(data.size(), Checksum(data)));
    EXPECT_TRUE(assembler_.in_block());
    for (const char c : data) {
      EXPECT_FALSE(assembler_.complete());
      Accept(Chunk(std::string(1, c)));
    }
    ASSERT_TRUE(assembler_.complete());
    EXPECT_FALSE(assembler_.in_block());
    AssembledBlock block = assembler_.Take();
    EXPECT_FALSE(assembler_.complete());
    EXPECT_EQ(block.step, 3u);
    EXPECT_EQ(block.micro_batch, 1u);
    EXPECT_EQ(block.bytes, data.size());
    EXPECT_EQ(std::string(block.buffer.bytes.begin(), block.buffer.bytes.end()),
              data);
    pool_.Return(std::move(block.buffer));
  }
}

TEST_F(BlockAssemblerTest, RefusesADamagedBlock) {
  Accept(Begin(2, Checksum("ab")));
  Refuse(Chunk("ac"), absl::StatusCode::kDataLoss,
         "step 3 micro-batch 1, byte 2 of 2 has checksum");
}

TEST_F(BlockAssemblerTest, RefusesAbsurdSizes) {
  Refuse(Begin(kMaxBlock + 1), absl::StatusCode::kInternal,
         "announced 1001 bytes for step 3 micro-batch 1, wanted 1 to 1000");
  Refuse(Begin(UINT64_MAX), absl::StatusCode::kInternal, "wanted 1 to 1000");
  Refuse(Begin(0), absl::StatusCode::kInternal, "announced 0 bytes");
  EXPECT_FALSE(assembler_.in_block());
}

TEST_F(BlockAssemblerTest, RefusesMoreThanTheCredit) {
  Refuse(Begin(100), absl::StatusCode::kInternal,
         "of 100 bytes without the credit for it, which is 99", 99);
}

TEST_F(BlockAssemblerTest, RefusesBadChunks) {
  Refuse(Chunk("a"), absl::StatusCode::kInternal, "before any block");
  Accept(Begin(5));
  Refuse(Chunk(""), absl::StatusCode::kInternal, "a chunk of 0 bytes");
  Refuse(Chunk(std::string(kMiB + 1, 'a')), absl::StatusCode::kInternal,
         "a chunk of 1048577 bytes in step 3 micro-batch 1, byte 0 of 5");
  Accept(Chunk("abc"));
  Refuse(Chunk("def"), absl::StatusCode::kInternal, "too many");
}

TEST_F(BlockAssemblerTest, AcceptsTheLargestChunk) {
  BufferPool pool(4 * kMiB);
  BlockAssembler assembler(2 * kMiB, &pool);
  const std::string data(kMiB, 'a');
  ASSERT_TRUE(assembler.Begin(Begin(kMiB, Checksum(data)), kMiB).ok());
  ASSERT_TRUE(assembler.AddChunk(Chunk(data).pieces).ok());
  EXPECT_TRUE(assembler.complete());
}

TEST_F(BlockAssemblerTest, RefusesABlockWithinABlock) {
  Accept(Begin(5));
  Accept(Chunk("ab"));
  Refuse(Begin(5), absl::StatusCode::kInternal,
         "began step 3 micro-batch 1 within step 3 micro-batch 1, byte 2 of 5");
}

}  // namespace
}  // namespace ballast
