#include "trainer_shim/totals.h"

#include <initializer_list>

#include <gtest/gtest.h>

namespace ballast {
namespace {

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
