#include "server/text/family_positions.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// make_family_positions.py made the cases.
TEST(FamilyPositionsTest, EqualThoseOfTheModels) {
  const nlohmann::json cases =
      ReadJsonOrFail("tests/server/text/testdata/family_positions.json");
  ASSERT_EQ(cases.size(), 24u);
  for (const nlohmann::json& expected : cases) {
    SCOPED_TRACE(expected.dump());
    const PositionRule rule =
        PositionRuleOf(expected["family"].get<std::string>());
    const uint32_t tokens = expected["tokens"];
    std::vector<PlacedImage> images;
    for (const nlohmann::json& image : expected["images"]) {
      images.push_back({image[0], image[1], image[2]});
    }
    std::vector<int32_t> wanted;
    for (const nlohmann::json& axis : expected["positions"]) {
      for (const nlohmann::json& id : axis) wanted.push_back(id);
    }
    std::vector<int32_t> positions(AxesOf(rule) * tokens);
    ASSERT_TRUE(
        NumberTokens(rule, tokens, images, absl::MakeSpan(positions)).ok());
    EXPECT_EQ(positions, wanted);
  }
}

TEST(FamilyPositionsTest, OtherFamiliesCountTokens) {
  std::vector<int32_t> positions(5);
  for (const char* name : {"gemma3", "llama4", "internvl3", "pixtral"}) {
    ASSERT_EQ(AxesOf(PositionRuleOf(name)), 1u);
    ASSERT_TRUE(NumberTokens(PositionRuleOf(name), 5, {{1, 1, 3}},
                             absl::MakeSpan(positions))
                    .ok());
    EXPECT_THAT(positions, ElementsAre(0, 1, 2, 3, 4));
  }
}

TEST(FamilyPositionsTest, RefusesImagesThatDoNotFit) {
  std::vector<int32_t> positions(3 * 10);
  const auto message = [&](const std::vector<PlacedImage>& images) {
    return std::string(NumberTokens(PositionRule::kRowsAndColumns, 10, images,
                                    absl::MakeSpan(positions))
                           .message());
  };
  EXPECT_EQ(message({{0, 2, 5}}), "");
  EXPECT_EQ(message({{1, 2, 5}}),
            "image 0 of 2x5 tokens begins at token 1; wanted it from token 0 "
            "on and within 10");
  EXPECT_THAT(message({{0, 2, 2}, {3, 1, 1}}),
              HasSubstr("image 1 of 1x1 tokens begins at token 3; wanted it "
                        "from token 4"));
  EXPECT_THAT(message({{0, 1u << 31, 1u << 31}}), HasSubstr("image 0"));
  positions.pop_back();
  EXPECT_THAT(message({}), HasSubstr("room for 29 position ids; wanted 30"));
}

}  // namespace
}  // namespace ballast
