#include "server/model/image_family_config.h"

#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/config/config_loader.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

absl::StatusOr<LoadedConfig> LoadWith(const std::string& family_yaml) {
  return ParseConfig(
      absl::StrCat("sources: [{name: a, format: mock, lengths: {mode: "
                   "lognormal, min: 1, max: 9, mean: 4, sigma: 1}}]\n"
                   "batch: {global: 8, micro: 8}\n"
                   "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n"
                   "model:\n  mean: [0.5, 0.5, 0.5]\n  std: [0.5, 0.5, "
                   "0.5]\n  ",
                   absl::StrReplaceAll(family_yaml, {{"\n", "\n  "}}), "\n"),
      "F", "DIR");
}

// A released model's family, printed and read again, is the same.
TEST(ImageFamilyConfigTest, ReadsWhatIsPrintedOfEachFamily) {
  for (const std::string& name : ProfileNames(TakesImages)) {
    SCOPED_TRACE(name);
    const ImageFamily& family = *FindImageFamily(name);
    const auto loaded = LoadWith(FamilyYaml(family));
    ASSERT_TRUE(loaded.ok()) << loaded.status() << FamilyYaml(family);
    const v1::ImageFamily& read = loaded->config.model().image_family();
    EXPECT_TRUE(MessageDifferencer::Equals(read, ConfigOfFamily(family)))
        << FamilyYaml(family);
    // And so is what images are planned with.
    EXPECT_TRUE(MessageDifferencer::Equals(ConfigOfFamily(FamilyOfConfig(read)),
                                           ConfigOfFamily(family)));
    EXPECT_EQ(FamilyOfConfig(read).filter, family.filter);
    EXPECT_EQ(FamilyOfConfig(read).layout, family.layout);
    EXPECT_EQ(FamilyOfConfig(read).merge, family.merge);
    EXPECT_EQ(FamilyOfConfig(read).background, family.background);
    EXPECT_EQ(FamilyOfConfig(read).share_tiles, family.share_tiles);
    EXPECT_EQ(FamilyOfConfig(read).round_sides, family.round_sides);
  }
}

TEST(ImageFamilyConfigTest, PrintsWhatDiffersFromTheDefaults) {
  EXPECT_EQ(FamilyYaml(*FindImageFamily("internvl3")),
            R"(image_family:
  name: "internvl3"
  rule: tile_grid
  patch: 14
  merge: 2
  tile: 448
  max_tiles: 12
  tokens_an_image: 2
  marks:
    placeholder: "<IMG_CONTEXT>"
    before: "<img>"
    after: "</img>"
  share_tiles: true
)");
  EXPECT_THAT(FamilyYaml(*FindImageFamily("llava_next")),
              HasSubstr("canvases: [{height: 672, width: 336}, "));
}

}  // namespace
}  // namespace ballast
