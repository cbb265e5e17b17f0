#include "server/media/image/png_filters.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace ballast {
namespace {

// What the specification predicts of a byte.
int Predicted(int type, int left, int above, int corner) {
  const int p = left + above - corner;
  const int pa = std::abs(p - left), pb = std::abs(p - above),
            pc = std::abs(p - corner);
  switch (type) {
    case 1:
      return left;
    case 2:
      return above;
    case 3:
      return (left + above) / 2;
    case 4:
      return pa <= pb && pa <= pc ? left : pb <= pc ? above : corner;
    default:
      return 0;
  }
}

TEST(UnfilterTest, UndoesWhatTheSpecificationFilters) {
  std::mt19937 random(7);
  for (int type = 0; type <= 4; ++type) {
    for (const size_t pixel : {1, 2, 3, 4, 6, 8}) {
      for (const size_t pixels : {1, 2, 5, 64, 1001}) {
        // Few values make ties; extremes make carries.
        for (const int values : {2, 5, 256}) {
          const size_t size = pixel * pixels;
          std::vector<uint8_t> above(size), wanted(size), row(size);
          for (size_t i = 0; i < size; ++i) {
            above[i] = random() % values * (255 / (values - 1));
            wanted[i] = random() % values * (255 / (values - 1));
          }
          for (size_t i = 0; i < size; ++i) {
            const bool is_first = i < pixel;
            row[i] = wanted[i] -
                     Predicted(type, is_first ? 0 : wanted[i - pixel], above[i],
                               is_first ? 0 : above[i - pixel]);
          }
          ASSERT_TRUE(Unfilter(type, pixel, row.data(), above.data(), size));
          ASSERT_EQ(row, wanted) << type << " " << pixel << " " << pixels;
        }
      }
    }
  }
}

TEST(UnfilterTest, LeavesRowsOfOtherTypesAsTheyAre) {
  std::vector<uint8_t> row = {1, 2, 3};
  const std::vector<uint8_t> above = {4, 5, 6};
  EXPECT_FALSE(Unfilter(5, 3, row.data(), above.data(), 3));
  EXPECT_EQ(row, (std::vector<uint8_t>{1, 2, 3}));
}

}  // namespace
}  // namespace ballast
