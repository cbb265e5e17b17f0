#include "trainer_shim/context_slice.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Indices(const std::vector<int32_t>& bounds, uint32_t size,
                             uint32_t rank) {
  const auto indices = ContextIndices(bounds, {size, rank});
  EXPECT_TRUE(indices.ok()) << indices.status();
  return *indices;
}

// The vectors of Transformer Engine's thd_get_partitioned_indices.
TEST(ContextIndicesTest, EqualTransformerEngines) {
  EXPECT_THAT(Indices({0, 8, 12}, 2, 0), ElementsAre(0, 1, 6, 7, 8, 11));
  EXPECT_THAT(Indices({0, 8, 12}, 2, 1), ElementsAre(2, 3, 4, 5, 9, 10));
  const std::vector<int32_t> bounds = {0, 16, 24};
  EXPECT_THAT(Indices(bounds, 4, 0), ElementsAre(0, 1, 14, 15, 16, 23));
  EXPECT_THAT(Indices(bounds, 4, 1), ElementsAre(2, 3, 12, 13, 17, 22));
  EXPECT_THAT(Indices(bounds, 4, 2), ElementsAre(4, 5, 10, 11, 18, 21));
  EXPECT_THAT(Indices(bounds, 4, 3), ElementsAre(6, 7, 8, 9, 19, 20));
}

// By the definition: cuts a sample and takes two of the pieces.
TEST(ContextIndicesTest, AreTwoPiecesOfEachSample) {
  std::mt19937 random(7);
  for (const uint32_t size : {1u, 2u, 3u, 4u, 8u}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<int32_t> bounds = {0};
      for (uint32_t n = 1 + random() % 6; n > 0; --n) {
        // Includes samples without tokens, after the first.
        const int32_t pieces =
            bounds.size() == 1 ? 1 + random() % 9 : random() % 10;
        bounds.push_back(bounds.back() + pieces * 2 * size);
      }
      for (uint32_t rank = 0; rank < size; ++rank) {
        std::vector<int32_t> wanted;
        for (size_t s = 0; s + 1 < bounds.size(); ++s) {
          const int32_t piece = (bounds[s + 1] - bounds[s]) / (2 * size);
          for (const uint32_t number : {rank, 2 * size - 1 - rank}) {
            for (int32_t i = 0; i < piece; ++i) {
              wanted.push_back(bounds[s] + number * piece + i);
            }
          }
        }
        EXPECT_EQ(Indices(bounds, size, rank), wanted);
      }
    }
  }
}

TEST(ContextIndicesTest, OneRankHasAllOfAnyLength) {
  EXPECT_THAT(Indices({0, 3, 5}, 1, 0), ElementsAre(0, 1, 2, 3, 4));
}

TEST(ContextIndicesTest, RefusesSequencesThatCannotBeCut) {
  const struct {
    std::vector<int32_t> bounds;
    ContextSlice slice;
    const char* message;
  } cases[] = {
      {{}, {2, 0}, "at least one sample"},
      {{0}, {2, 0}, "at least one sample"},
      {{0, 0}, {2, 0}, "at least one sample"},
      {{4, 8}, {2, 0}, "wanted 0"},
      {{0, 4, 6}, {2, 0}, "cu_seqlens_padded[2] is 6, wanted a multiple of 4"},
      {{0, 8, 4, 8}, {2, 0}, "cu_seqlens_padded[2] is 4"},
      {{0, 8}, {2, 2}, "context rank 2 of 2"},
      {{0, 8}, {0, 0}, "context rank 0 of 0"},
  };
  for (const auto& c : cases) {
    const auto indices = ContextIndices(c.bounds, c.slice);
    EXPECT_EQ(indices.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(indices.status().message(), HasSubstr(c.message));
  }
}

TEST(ContextAlignTest, MustBeAMultipleOfThePieces) {
  EXPECT_TRUE(CheckContextAlign(1, 1).ok());
  EXPECT_TRUE(CheckContextAlign(2, 4).ok());
  EXPECT_TRUE(CheckContextAlign(4, 32).ok());
  const absl::Status status = CheckContextAlign(4, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("multiples of 4 tokens, wanted of 8"));
}

}  // namespace
}  // namespace ballast
