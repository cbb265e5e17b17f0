#include "server/corpus/check/index_check.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/corpus/index/index_writer.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Samples of 0, 1, 2, 0, 1, 2, … images of 100 bytes; every seventh image is
// already checked.
std::shared_ptr<const IndexFile> Index(uint32_t samples) {
  IndexContents contents;
  contents.files = {{"a.tar", {1000, 5}, 0}};
  for (uint32_t i = 0; i < samples; ++i) {
    IndexSampleRecord sample = {};
    sample.offset = i;
    sample.first_image = contents.images.size();
    sample.num_images = i % 3 & 3;
    contents.samples.push_back(sample);
    for (uint32_t k = 0; k < i % 3; ++k) {
      const bool is_checked = contents.images.size() % 7 == 0;
      contents.images.push_back({10, 20});
      contents.marks.push_back(
          ImageMark::Marked(100, is_checked ? ImageCheckResult::kUnsound
                                            : ImageCheckResult::kUnchecked));
    }
  }
  const std::string path = TestFolder() + "/a.index";
  EXPECT_TRUE(WriteIndex(path, contents).ok());
  const auto index = IndexFile::Open(path);
  EXPECT_TRUE(index.ok()) << index.status();
  EXPECT_TRUE((*index)->Verify(nullptr).ok());
  return *index;
}

TEST(CheckPlanTest, UnitsEndAtEitherBound) {
  // Images 0 | 1 2 | 3 | 4 5 | 6 | 7 8 of samples 1, 2, 4, 5, 7, 8; of them 0
  // and 7 are checked.
  const auto index = Index(9);
  EXPECT_THAT(PlanCheck(*index, {.bytes = 10'000, .images = 3}),
              ElementsAre(CheckUnit{0, 5, 3, 300}, CheckUnit{5, 8, 3, 300},
                          CheckUnit{8, 9, 1, 100}));
  EXPECT_THAT(PlanCheck(*index, {.bytes = 200, .images = 100}),
              ElementsAre(CheckUnit{0, 3, 2, 200}, CheckUnit{3, 6, 3, 300},
                          CheckUnit{6, 9, 2, 200}));
  EXPECT_THAT(PlanCheck(*index), ElementsAre(CheckUnit{0, 9, 7, 700}));
  EXPECT_THAT(PlanCheck(*Index(2)), IsEmpty());
}

}  // namespace
}  // namespace ballast
