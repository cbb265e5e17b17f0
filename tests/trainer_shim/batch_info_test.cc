#include "trainer_shim/batch_info.h"

#include <initializer_list>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(TotalsTest, CountsRealAndPadded) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t tokens : {3u, 8u, 0xFFFFFFFFu}) {
    columns.add_tokens(tokens);
    columns.add_label_tokens(tokens / 2);
    columns.add_images(tokens == 8 ? 2 : 0);
    columns.add_clips(tokens == 8 ? 1 : 2);
  }
  for (const uint32_t frames : {10, 20, 30, 40, 50}) {
    columns.add_clip_frames(frames);
    columns.add_clip_rows(frames + 2);
  }
  for (const uint32_t side : {2, 4}) {
    columns.add_grid_h(side);
    columns.add_grid_w(6);
  }
  auto* module = columns.add_modules();
  module->set_module(v1::MODULE_VISION);
  for (const uint32_t owner : {1, 0, 1}) module->add_owner(owner);

  const PackedTotals all = SumTotals(columns, {4});
  EXPECT_EQ(all.samples, 3);
  EXPECT_EQ(all.tokens, 11 + uint64_t{0xFFFFFFFF});
  EXPECT_EQ(all.tokens_squared, 9 + 64 + uint64_t{0xFFFFFFFF} * 0xFFFFFFFF);
  EXPECT_EQ(all.patches, 12 + 24);
  EXPECT_EQ(all.images, 2);
  EXPECT_EQ(all.clips, 5);
  EXPECT_EQ(all.frames, 150);

  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  const PackedTotals first = SumTotals(columns, {5}, role);
  EXPECT_EQ(first.samples, 1);
  EXPECT_EQ(first.tokens, 8);
  EXPECT_EQ(first.padded_tokens, 10);
  EXPECT_EQ(first.padded_tokens_squared, 100);
  EXPECT_EQ(first.label_tokens, 4);
  EXPECT_EQ(first.patches, 36);
  EXPECT_EQ(first.clips, 1);
  EXPECT_EQ(first.frames, 30);
  role.set_module(v1::MODULE_LANGUAGE);
  EXPECT_EQ(SumTotals(columns, {5}, role), PackedTotals());
}

// A pair is one sample, and its squares and its padding are of two sequences.
TEST(TotalsTest, CountsTheSequencesOfPairs) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t tokens : {10, 7}) {
    columns.add_tokens(tokens);
    columns.add_label_tokens(1);
    columns.add_images(0);
  }
  columns.add_first_tokens(3);
  columns.add_first_tokens(0);
  const PackedTotals totals = SumTotals(columns, {4});
  EXPECT_EQ(totals.samples, 2);
  EXPECT_EQ(totals.tokens, 17);
  EXPECT_EQ(totals.tokens_squared, 3 * 3 + 7 * 7 + 7 * 7);
  EXPECT_EQ(totals.padded_tokens, 4 + 8 + 8);
  EXPECT_EQ(totals.padded_tokens_squared, 4 * 4 + 8 * 8 + 8 * 8);
  EXPECT_EQ(RowLength(columns, {4, true, 0}), 8u);
  EXPECT_EQ(SumTotals(columns, {4, true, 0}).padded_tokens, 3 * 8);
}

// Rows are as long as the longest sample of all ranks, also on a rank that does
// not own it.
TEST(TotalsTest, CountsThePaddingOfRows) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t tokens : {3, 8, 5}) {
    columns.add_tokens(tokens);
    columns.add_label_tokens(1);
    columns.add_images(0);
  }
  auto* module = columns.add_modules();
  module->set_module(v1::MODULE_LANGUAGE);
  for (const uint32_t owner : {1, 0, 1}) module->add_owner(owner);
  v1::Role role;
  role.set_module(v1::MODULE_LANGUAGE);
  role.set_dp_rank(1);
  const SamplePadding longest = {3, true, 0};
  EXPECT_EQ(SumTotals(columns, longest).padded_tokens, 3 * 9);
  EXPECT_EQ(SumTotals(columns, longest, role).padded_tokens, 2 * 9);
  EXPECT_EQ(SumTotals(columns, longest, role).padded_tokens_squared, 2 * 81);
  EXPECT_EQ(SumTotals(columns, longest, role).tokens, 8);
  const SamplePadding fixed = {3, true, 30};
  EXPECT_EQ(SumTotals(columns, fixed, role).padded_tokens, 2 * 30);
}

v1::MicroBatchSchedule Tokens(std::initializer_list<uint32_t> tokens) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t each : tokens) columns.add_tokens(each);
  return columns;
}

TEST(RowLengthTest, IsTheLongestSamplesOfAllRanks) {
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {1, true, 0}), 9);
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {4, true, 0}), 12);
  EXPECT_EQ(RowLength(Tokens({3, 12, 4}), {4, true, 0}), 12);
  EXPECT_EQ(RowLength(Tokens({0xFFFFFFFF}), {8, true, 0}),
            uint64_t{0x100000000});
}

TEST(RowLengthTest, MayBeFixed) {
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {4, true, 64}), 64);
}

TEST(RowLengthTest, IsZeroForPackedBatches) {
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {4, false, 64}), 0);
}

}  // namespace
}  // namespace ballast
