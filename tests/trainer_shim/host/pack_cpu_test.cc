#include "trainer_shim/host/packed_batch.h"

#include <bit>
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

// PackText into a batch of this layout, whose memory had other values before.
void PackInto(const std::vector<TextPiece>& pieces, const TextLayout& layout,
              uint32_t position_axes, int32_t pad_id, PackedBatch* batch) {
  batch->text = layout;
  batch->max_seqlen = layout.max_seqlen;
  batch->position_axes = position_axes;
  batch->samples.resize(pieces.size());
  LayOutTensors(batch);
  batch->packed.assign(batch->packed_bytes, 5);
  PackText(pieces, pad_id, batch);
}

TEST(PackTextTest, PaddingFollowsEachSample) {
  const Payload a =
      Text({11, 12, 13}, {12, 13, -100}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const Payload b = Text({21, 9}, {-100, 9}, {10, 11, 12, 13, 14, 15});
  const TextLayout layout = *LayOutText({3, 2}, 4);
  PackedBatch batch;
  PackInto({{a.bytes, 3}, {b.bytes, 2}}, layout, /*position_axes=*/3,
           /*pad_id=*/9, &batch);
  EXPECT_THAT(batch.Get<int64_t>("input_ids"),
              ElementsAre(11, 12, 13, 9, 21, 9, 9, 9));
  EXPECT_THAT(batch.Get<int64_t>("labels"),
              ElementsAre(12, 13, -100, -100, -100, 9, -100, -100));
  EXPECT_THAT(batch.Get<float>("loss_mask"),
              ElementsAre(1, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_THAT(batch.Get<int64_t>("position_ids"),
              ElementsAre(0, 1, 2, 0, 10, 11, 0, 0,  //
                          3, 4, 5, 0, 12, 13, 0, 0,  //
                          6, 7, 8, 0, 14, 15, 0, 0));
  EXPECT_THAT(batch.text.cu_seqlens, ElementsAre(0, 3, 5));
  EXPECT_THAT(batch.text.cu_seqlens_padded, ElementsAre(0, 4, 8));
}

// The same bytes as rows of 4: [2, 4], and a mask instead of the bounds.
TEST(PackTextTest, RowsHaveAMask) {
  const Payload a =
      Text({11, 12, 13}, {12, 13, -100}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const Payload b = Text({21, 9}, {-100, 9}, {10, 11, 12, 13, 14, 15});
  PackedBatch batch;
  batch.padded = true;
  PackInto({{a.bytes, 3}, {b.bytes, 2}}, *LayOutRows({3, 2}, 4),
           /*position_axes=*/3, /*pad_id=*/9, &batch);
  EXPECT_THAT(batch.Get<int64_t>("input_ids"),
              ElementsAre(11, 12, 13, 9, 21, 9, 9, 9));
  EXPECT_THAT(batch.Get<uint8_t>("attention_mask"),
              ElementsAre(1, 1, 1, 0, 1, 1, 0, 0));

  // A context rank has its zig-zag part of every row: of the pieces 0 to 3, one
  // token each, rank 1 has 1 and 2.
  batch.context = {2, 1};
  PackInto({{a.bytes, 3}, {b.bytes, 2}}, *LayOutRows({3, 2}, 4), 3, 9, &batch);
  EXPECT_THAT(batch.Get<int64_t>("input_ids"), ElementsAre(12, 13, 9, 9));
  EXPECT_THAT(batch.Get<uint8_t>("attention_mask"), ElementsAre(1, 1, 1, 0));

  batch.padded = false;
  PackInto({{a.bytes, 3}}, *LayOutText({3}, 4), 3, 9, &batch);
  EXPECT_TRUE(batch.Get<uint8_t>("attention_mask").empty());
}

TEST(PackTextTest, PositionsMayHaveOneAxis) {
  const Payload a = Text({1, 2}, {2, -100}, {0, 1});
  PackedBatch batch;
  PackInto({{a.bytes, 2}}, *LayOutText({2}, 1), 1, 0, &batch);
  EXPECT_THAT(batch.Get<int64_t>("position_ids"), ElementsAre(0, 1));
  EXPECT_THAT(batch.Get<int64_t>("input_ids"), ElementsAre(1, 2));
}

// The payload's bits, without a conversion.
TEST(PackTextTest, PositionsMayBeFloats) {
  std::vector<int32_t> bits;
  for (const float place : {0.0f, 1.0f, 8.3f, 0.0f, 1.0f, 2.3f}) {
    bits.push_back(std::bit_cast<int32_t>(place));
  }
  const Payload a = Text({1, 2}, {2, -100}, bits);
  PackedBatch batch;
  batch.float_positions = true;
  PackInto({{a.bytes, 2}}, *LayOutText({2}, 4), 3, 0, &batch);
  EXPECT_THAT(batch.Get<float>("position_ids"),
              ElementsAre(0, 1, 0, 0, 8.3f, 0, 0, 0, 1, 2.3f, 0, 0));
  EXPECT_TRUE(batch.Get<int64_t>("position_ids").empty());
  EXPECT_EQ(FindTensor(batch, "position_ids")->type, ElementType::kFloat32);
  batch.fields.positions = false;
  PackInto({{a.bytes, 2}}, *LayOutText({2}, 4), 3, 0, &batch);
  EXPECT_EQ(FindTensor(batch, "position_ids"), nullptr);
}

v1::Job JobWithFields() {
  using Field = v1::Source::Field;
  v1::Job job;
  const auto add = [&job](const char* name, Field::Type type, Field::Per per) {
    v1::Job::Field* field = job.add_fields();
    field->set_name(name);
    field->set_type(type);
    field->set_per(per);
  };
  add("advantage", Field::TYPE_FLOAT32, Field::PER_SAMPLE);
  add("channel", Field::TYPE_INT32, Field::PER_SAMPLE);
  add("logprob", Field::TYPE_FLOAT32, Field::PER_TOKEN);
  add("weight", Field::TYPE_FLOAT32, Field::PER_TURN);
  return job;
}

Payload WithFields(Payload payload, size_t tokens, float advantage,
                   int32_t channel, const std::vector<float>& logprob,
                   const std::vector<float>& weight) {
  const LanguagePayload at = LayOutLanguage(tokens, 1, {2, 2});
  std::memcpy(payload.bytes + at.values, &advantage, 4);
  std::memcpy(payload.bytes + at.values + 4, &channel, 4);
  std::memcpy(payload.bytes + at.rows, logprob.data(), tokens * 4);
  std::memcpy(payload.bytes + at.rows + tokens * 4, weight.data(), tokens * 4);
  return payload;
}

TEST(PackTextTest, FieldsAreJoinedAsTokensAre) {
  const Payload a = WithFields(Text({11, 12, 13}, {12, 13, -100}, {0, 1, 2}), 3,
                               -1.5f, 7, {1, 2, 3}, {1, 0.5f, 0.25f});
  const Payload b = WithFields(Text({21, 9}, {9, -100}, {0, 1}), 2, 2.5f, -7,
                               {4, 5}, {1, 0.75f});
  PackedBatch batch;
  batch.field_table = *MakeFieldTable(JobWithFields());
  batch.table = MakeTensorTable(GetFieldRows(*batch.field_table));
  PackInto({{a.bytes, 3}, {b.bytes, 2}}, *LayOutText({3, 2}, 4), 1, 9, &batch);
  EXPECT_THAT(batch.Get<float>("fields.advantage"), ElementsAre(-1.5f, 2.5f));
  EXPECT_THAT(batch.Get<int32_t>("fields.channel"), ElementsAre(7, -7));
  EXPECT_THAT(batch.Get<float>("fields.logprob"),
              ElementsAre(1, 2, 3, 0, 4, 5, 0, 0));
  EXPECT_THAT(batch.Get<float>("fields.weight"),
              ElementsAre(1, 0.5f, 0.25f, 0, 1, 0.75f, 0, 0));
  // Of the token that the label names.
  EXPECT_THAT(batch.Get<float>("loss_mask"),
              ElementsAre(0.5f, 0.25f, 0, 0, 0.75f, 0, 0, 0));
  EXPECT_EQ(FindTensor(batch, "fields.logprob")->shape.sides[0], 1);

  // Context rank 1 of 2 has tokens 1 and 2 of 4.
  batch.context = {2, 1};
  PackInto({{a.bytes, 3}, {b.bytes, 2}}, *LayOutText({3, 2}, 4), 1, 9, &batch);
  EXPECT_THAT(batch.Get<float>("fields.advantage"), ElementsAre(-1.5f, 2.5f));
  EXPECT_THAT(batch.Get<float>("fields.logprob"), ElementsAre(2, 3, 5, 0));
  EXPECT_THAT(batch.Get<float>("loss_mask"), ElementsAre(0.25f, 0, 0, 0));

  // A stage in the middle has no loss, but fields.
  batch.context = {};
  batch.fields.labels = false;
  PackInto({{a.bytes, 3}}, *LayOutText({3}, 1), 1, 9, &batch);
  EXPECT_THAT(batch.Get<float>("fields.logprob"), ElementsAre(1, 2, 3));
  EXPECT_TRUE(batch.Get<float>("loss_mask").empty());
}

TEST(FieldTableTest, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const v1::Job& job) {
    return absl::IsInvalidArgument(MakeFieldTable(job).status());
  };
  EXPECT_FALSE(refused(JobWithFields()));
  v1::Job job = JobWithFields();
  job.mutable_fields(1)->set_name("advantage");
  EXPECT_TRUE(refused(job));
  job.mutable_fields(1)->set_name("");
  EXPECT_TRUE(refused(job));
  job = JobWithFields();
  job.mutable_fields(0)->clear_type();
  EXPECT_TRUE(refused(job));
  job = JobWithFields();
  job.mutable_fields(0)->clear_per();
  EXPECT_TRUE(refused(job));
  job = JobWithFields();
  for (int i = 0; i < 13; ++i) *job.add_fields() = job.fields(0);
  EXPECT_TRUE(refused(job));
}

TEST(DigestTest, CoversEveryTensorAndItsLength) {
  PackedBatch batch;
  const std::string empty = ComputeDigest(batch);
  EXPECT_EQ(empty.size(), 32);
  EXPECT_EQ(ComputeDigest(batch), empty);
  const Payload a = Text({1, 2}, {2, -100}, {0, 1});
  PackInto({{a.bytes, 2}}, *LayOutText({2}, 1), 1, 0, &batch);
  const std::string whole = ComputeDigest(batch);
  EXPECT_NE(whole, empty);
  // Moving values from one tensor to another changes the digest.
  std::swap(batch.tensors[0].offset, batch.tensors[1].offset);
  EXPECT_NE(ComputeDigest(batch), whole);
  std::swap(batch.tensors[0].offset, batch.tensors[1].offset);
  EXPECT_EQ(ComputeDigest(batch), whole);
  batch.dummy_image = true;
  EXPECT_NE(ComputeDigest(batch), whole);
}

}  // namespace
}  // namespace ballast
