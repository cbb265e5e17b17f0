#include "trainer_shim/thd_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

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

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TextLayoutTest, TightPackHasEqualArrays) {
  // cu_seqlens [0,3,5,9], longest 4.
  const auto layout = LayOutText({3, 2, 4}, 1);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->cu_seqlens, ElementsAre(0, 3, 5, 9));
  EXPECT_EQ(layout->cu_seqlens_padded, layout->cu_seqlens);
  EXPECT_EQ(layout->max_seqlen, 4);
}

TEST(TextLayoutTest, AlignmentPadsEverySample) {
  // The padding mask of [0,3,5] / [0,4,8].
  const auto layout = LayOutText({3, 2}, 4);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->cu_seqlens, ElementsAre(0, 3, 5));
  EXPECT_THAT(layout->cu_seqlens_padded, ElementsAre(0, 4, 8));
  EXPECT_EQ(layout->max_seqlen, 4);
  EXPECT_EQ(layout->tokens(), 5);
  EXPECT_EQ(layout->padded_tokens(), 8);
}

TEST(TextLayoutTest, RefusesEmptyAndTooLongSequences) {
  EXPECT_THAT(LayOutText({}, 1).status().message(),
              HasSubstr("empty packed shard"));
  EXPECT_THAT(LayOutText({1, 0}, 1).status().message(),
              HasSubstr("sample 1 of the packed shard has no tokens"));
  EXPECT_FALSE(LayOutText({1}, 0).ok());
  EXPECT_TRUE(LayOutText({0x7FFFFFFF}, 1).ok());
  EXPECT_THAT(LayOutText({0x7FFFFFFF, 1}, 1).status().message(),
              HasSubstr("2147483648 tokens"));
  EXPECT_FALSE(LayOutText({0xFFFFFFFF}, 8).ok());
}

TEST(TextLayoutTest, ValidateFindsEveryDisagreement) {
  const TextLayout good = *LayOutText({3, 2}, 4);
  EXPECT_TRUE(good.Validate(4).ok());
  EXPECT_FALSE(good.Validate(3).ok());
  TextLayout layout = good;
  layout.cu_seqlens[2] = 3;  // an empty sample
  EXPECT_FALSE(layout.Validate(4).ok());
  layout = good;
  layout.cu_seqlens_padded[2] = 4;  // shorter than the sample
  EXPECT_FALSE(layout.Validate(4).ok());
  layout = good;
  layout.max_seqlen = 3;
  EXPECT_FALSE(layout.Validate(4).ok());
  layout = good;
  layout.cu_seqlens[0] = 1;
  EXPECT_FALSE(layout.Validate(4).ok());
  EXPECT_FALSE(TextLayout().Validate(1).ok());
}

TEST(RowLayoutTest, EachSampleTakesOneRow) {
  const auto layout = LayOutRows({3, 5, 1}, 6);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->cu_seqlens, ElementsAre(0, 3, 8, 9));
  EXPECT_THAT(layout->cu_seqlens_padded, ElementsAre(0, 6, 12, 18));
  EXPECT_EQ(layout->max_seqlen, 6);
  EXPECT_THAT(LayOutRows({6, 6}, 6)->cu_seqlens_padded, ElementsAre(0, 6, 12));
}

TEST(RowLayoutTest, RefusesRowsThatCannotBe) {
  EXPECT_THAT(LayOutRows({3, 7}, 6).status().message(),
              HasSubstr("sample 1 of the padded shard has 7 tokens, wanted at "
                        "most the row length, 6"));
  EXPECT_FALSE(LayOutRows({3}, 0).ok());
  EXPECT_FALSE(LayOutRows({3}, uint64_t{1} << 31).ok());
  EXPECT_FALSE(LayOutRows({}, 6).ok());
  EXPECT_THAT(LayOutRows({1, 1, 1}, 1 << 30).status().message(),
              HasSubstr("tokens after sample 1"));
}

TEST(VisionLayoutTest, SegmentsAreFramesOfImages) {
  // h*w repeated t times, cumulated from 0.
  ImageRecord images[3] = {};
  images[0].grid_t = 1;
  images[0].grid_h = 4;
  images[0].grid_w = 6;
  images[1].grid_t = 2;
  images[1].grid_h = 2;
  images[1].grid_w = 8;
  images[2].grid_t = 1;
  images[2].grid_h = 2;
  images[2].grid_w = 2;
  const auto layout = LayOutVision(images);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->image_grid_thw, ElementsAre(1, 4, 6, 2, 2, 8, 1, 2, 2));
  EXPECT_THAT(layout->patch_offsets, ElementsAre(0, 24, 56, 60));
  EXPECT_THAT(layout->cu_seqlens, ElementsAre(0, 24, 40, 56, 60));
  EXPECT_EQ(layout->max_seqlen, 24);
  EXPECT_EQ(layout->num_images(), 3);
  EXPECT_EQ(layout->patches(), 60);

  VisionLayout broken = *layout;
  broken.cu_seqlens.pop_back();
  EXPECT_FALSE(broken.Validate().ok());
  broken = *layout;
  broken.patch_offsets[1] = 25;
  EXPECT_FALSE(broken.Validate().ok());
  broken = *layout;
  broken.image_grid_thw[1] = 2;
  EXPECT_FALSE(broken.Validate().ok());
}

TEST(VisionLayoutTest, NoImagesIsValid) {
  const auto layout = LayOutVision({});
  ASSERT_TRUE(layout.ok());
  EXPECT_THAT(layout->cu_seqlens, ElementsAre(0));
  EXPECT_EQ(layout->patches(), 0);
  EXPECT_EQ(layout->max_seqlen, 0);
}

TEST(VisionLayoutTest, RefusesImpossibleGrids) {
  ImageRecord image = {};
  EXPECT_FALSE(LayOutVision({&image, 1}).ok());
  image.grid_t = image.grid_h = image.grid_w = 0xFFFFFFFF;
  EXPECT_FALSE(LayOutVision({&image, 1}).ok());
}

}  // namespace

}  // namespace ballast
