// Compares the positions of families' images with those of their models.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/model_profile.h"
#include "server/text/positions.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kImage = 5;

v1::Model ModelOf(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  model.mutable_token_ids()->set_image(kImage);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

// make_family_positions.py made the cases: the first placeholder of each image,
// and its rows and columns of tokens.
TEST(FamilyPositionsTest, EqualThoseOfTheModels) {
  const nlohmann::json cases =
      ReadJsonOrFail("tests/server/text/testdata/family_positions.json");
  ASSERT_EQ(cases.size(), 24u);
  for (const nlohmann::json& expected : cases) {
    SCOPED_TRACE(expected.dump());
    const v1::Model model = ModelOf(expected["family"]);
    std::vector<int32_t> ids(expected["tokens"].get<size_t>(), 9);
    std::vector<GridThw> grids;
    for (const nlohmann::json& image : expected["images"]) {
      const uint32_t rows = image[1], columns = image[2];
      // HunyuanVL: a newline a row, and both ends.
      const uint32_t tokens = model.position_axes() == 4
                                  ? rows * (columns + 1) + 2
                                  : rows * columns;
      std::fill_n(ids.begin() + image[0].get<size_t>(), tokens, kImage);
      grids.push_back({1, rows * model.merge(), columns * model.merge()});
    }
    std::vector<int32_t> wanted;
    for (const nlohmann::json& axis : expected["positions"]) {
      for (const nlohmann::json& id : axis) wanted.push_back(id);
    }
    std::vector<int32_t> positions(model.position_axes() * ids.size());
    const absl::Status status =
        ComputePositions(ids, grids, model, absl::MakeSpan(positions));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(positions, wanted);
  }
}

TEST(FamilyPositionsTest, OtherFamiliesHaveOneAxis) {
  for (const char* name : {"gemma3", "llama4", "internvl3", "pixtral"}) {
    EXPECT_EQ(ModelOf(name).position_axes(), 1u);
  }
}

TEST(FamilyPositionsTest, RefusesImagesThatDoNotFit) {
  const v1::Model model = ModelOf("hunyuan_vl");
  std::vector<int32_t> positions(4 * 10);
  const std::vector<int32_t> ids = {1,      kImage, kImage, kImage, kImage,
                                    kImage, kImage, kImage, kImage, 1};
  const auto message = [&](const std::vector<GridThw>& grids) {
    return std::string(
        ComputePositions(ids, grids, model, absl::MakeSpan(positions))
            .message());
  };
  EXPECT_EQ(message({{1, 4, 4}}), "");
  EXPECT_THAT(message({{1, 4, 6}}),
              HasSubstr("image 0 has 10 tokens from token 1"));
  EXPECT_THAT(message({{1, 1u << 31, 1u << 31}}), HasSubstr("image 0"));
  positions.pop_back();
  EXPECT_THAT(message({}), HasSubstr("room for 39 position ids"));
}

}  // namespace
}  // namespace ballast
