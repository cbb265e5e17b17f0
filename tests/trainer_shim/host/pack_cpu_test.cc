#include "trainer_shim/host/pack_cpu.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;

struct alignas(16) Payload {
  uint8_t bytes[512] = {};
};

Payload Text(const std::vector<int32_t>& ids,
             const std::vector<int32_t>& labels,
             const std::vector<int32_t>& positions) {
  Payload payload;
  const LanguagePayload at =
      LayOutLanguage(ids.size(), positions.size() / ids.size());
  std::memcpy(payload.bytes + at.ids, ids.data(), ids.size() * 4);
  std::memcpy(payload.bytes + at.labels, labels.data(), labels.size() * 4);
  std::memcpy(payload.bytes + at.positions, positions.data(),
              positions.size() * 4);
  return payload;
}

TEST(PackTextTest, PaddingFollowsEachSample) {
  const Payload a =
      Text({11, 12, 13}, {12, 13, -100}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const Payload b = Text({21, 9}, {-100, 9}, {10, 11, 12, 13, 14, 15});
  const TextLayout layout = *LayOutText({3, 2}, 4);
  PackedBatch batch;
  // Stale values of a longer batch must not survive.
  batch.input_ids.assign(100, 5);
  batch.labels.assign(100, 5);
  batch.loss_mask.assign(100, 5);
  batch.position_ids.assign(300, 5);
  PackText({{a.bytes, 3}, {b.bytes, 2}}, layout, /*position_axes=*/3,
           /*pad_id=*/9, &batch);
  EXPECT_THAT(batch.input_ids, ElementsAre(11, 12, 13, 9, 21, 9, 9, 9));
  EXPECT_THAT(batch.labels,
              ElementsAre(12, 13, -100, -100, -100, 9, -100, -100));
  EXPECT_THAT(batch.loss_mask, ElementsAre(1, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_THAT(batch.position_ids, ElementsAre(0, 1, 2, 0, 10, 11, 0, 0,  //
                                              3, 4, 5, 0, 12, 13, 0, 0,  //
                                              6, 7, 8, 0, 14, 15, 0, 0));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 3, 5));
  EXPECT_THAT(batch.cu_seqlens_padded, ElementsAre(0, 4, 8));
  EXPECT_EQ(batch.max_seqlen, 4);
  EXPECT_EQ(batch.position_axes, 3);
}

// The same bytes as rows of 4: [2, 4], and a mask instead of the bounds.
TEST(PackTextTest, RowsHaveAMask) {
  const Payload a =
      Text({11, 12, 13}, {12, 13, -100}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const Payload b = Text({21, 9}, {-100, 9}, {10, 11, 12, 13, 14, 15});
  PackedBatch batch;
  batch.padded = true;
  batch.attention_mask.assign(100, 5);
  PackText({{a.bytes, 3}, {b.bytes, 2}}, *LayOutRows({3, 2}, 4),
           /*position_axes=*/3, /*pad_id=*/9, &batch);
  EXPECT_THAT(batch.input_ids, ElementsAre(11, 12, 13, 9, 21, 9, 9, 9));
  EXPECT_THAT(batch.attention_mask, ElementsAre(1, 1, 1, 0, 1, 1, 0, 0));

  // A context rank has its zig-zag part of every row: of the pieces 0 to 3, one
  // token each, rank 1 has 1 and 2.
  batch.context = {2, 1};
  PackText({{a.bytes, 3}, {b.bytes, 2}}, *LayOutRows({3, 2}, 4), 3, 9, &batch);
  EXPECT_THAT(batch.input_ids, ElementsAre(12, 13, 9, 9));
  EXPECT_THAT(batch.attention_mask, ElementsAre(1, 1, 1, 0));

  batch.padded = false;
  PackText({{a.bytes, 3}}, *LayOutText({3}, 4), 3, 9, &batch);
  EXPECT_TRUE(batch.attention_mask.empty());
}

TEST(PackTextTest, PositionsMayHaveOneAxis) {
  const Payload a = Text({1, 2}, {2, -100}, {0, 1});
  PackedBatch batch;
  PackText({{a.bytes, 2}}, *LayOutText({2}, 1), 1, 0, &batch);
  EXPECT_THAT(batch.position_ids, ElementsAre(0, 1));
  EXPECT_THAT(batch.input_ids, ElementsAre(1, 2));
}

TEST(DigestTest, CoversEveryTensorAndItsLength) {
  PackedBatch batch;
  const std::string empty = DigestOf(batch);
  EXPECT_EQ(empty.size(), 32);
  EXPECT_EQ(DigestOf(batch), empty);
  // Moving a value from one tensor to another changes the digest.
  batch.input_ids = {1};
  const std::string ids = DigestOf(batch);
  batch.labels.swap(batch.input_ids);
  EXPECT_NE(DigestOf(batch), ids);
  EXPECT_NE(ids, empty);
  const std::string labels = DigestOf(batch);
  batch.dummy_image = true;
  EXPECT_NE(DigestOf(batch), labels);
}

}  // namespace
}  // namespace ballast
