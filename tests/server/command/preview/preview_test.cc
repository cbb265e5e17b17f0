#include "server/command/preview/crop_overlay.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/command/preview/sample_view.h"
#include "server/model/model_profile.h"
#include "server/text/model_tokenizer.h"

namespace ballast {
namespace {

void ExpectPlace(const CropPlace& crop, double left, double top, double width,
                 double height) {
  EXPECT_DOUBLE_EQ(crop.left, left);
  EXPECT_DOUBLE_EQ(crop.top, top);
  EXPECT_DOUBLE_EQ(crop.width, width);
  EXPECT_DOUBLE_EQ(crop.height, height);
}

// An image of 400x200, resized to 200x100 in the middle of a canvas of 200x200,
// which is cut into 2x2 tiles; and a thumbnail of the canvas.
TEST(PlacesOfCropsTest, GoBackThroughPaddingAndStages) {
  ImagePlan plan;
  PlanStage tiles;
  tiles.from = {0, 0, 200, 400};
  tiles.place = {50, 0, 100, 200};
  tiles.height = tiles.width = 200;
  tiles.crop = {0, 0, 100, 100};
  tiles.rows = tiles.columns = 2;
  PlanStage thumbnail;
  thumbnail.source = 0;
  thumbnail.from = {0, 0, 200, 200};
  thumbnail.place = {0, 0, 50, 50};
  thumbnail.height = thumbnail.width = 50;
  thumbnail.crop = {0, 0, 50, 50};
  thumbnail.rows = thumbnail.columns = 1;
  plan.stages = {tiles, thumbnail};
  const std::vector<CropPlace> crops = PlacesOfCrops(plan);
  ASSERT_EQ(crops.size(), 5u);
  // A pixel of the canvas is two of the image; 100 rows above it are padding.
  ExpectPlace(crops[0], 0, -100, 200, 200);
  ExpectPlace(crops[1], 200, -100, 200, 200);
  ExpectPlace(crops[2], 0, 100, 200, 200);
  ExpectPlace(crops[3], 200, 100, 200, 200);
  ExpectPlace(crops[4], 0, -100, 400, 400);
}

// Qwen leaves sides that are multiples of 28 as they are.
TEST(DrawCropsOnTest, DrawsThePatchesOfAnImage) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  const RgbImage image = {560, 280, std::vector<uint8_t>(560 * 280 * 3, 255)};
  const std::vector<ImageSize> sides = {{560, 280}};
  const auto drawn =
      DrawCropsOn(image, ModelImages::Create(model).value(), sides, 0);
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  ASSERT_EQ(drawn->width, 560u);
  ASSERT_EQ(drawn->height, 280u);
  const auto is_drawn = [&](int x, int y) {
    const uint8_t* pixel = drawn->pixels.data() + 3 * (y * 560 + x);
    return pixel[0] != 255 || pixel[1] != 255 || pixel[2] != 255;
  };
  const int patch = static_cast<int>(model.patch());
  for (int y = 0; y < 280; ++y) {
    for (int x = 0; x < 560; ++x) {
      const bool edge = x < 3 || y < 3 || x >= 557 || y >= 277;
      ASSERT_EQ(is_drawn(x, y), edge || x % patch == 0 || y % patch == 0)
          << x << " " << y;
    }
  }
}

TEST(DrawCropsOnTest, RefusesAnImageThatCannotBeResized) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  const RgbImage line = {5000, 1, std::vector<uint8_t>(5000 * 3)};
  const std::vector<ImageSize> sides = {{5000, 1}};
  EXPECT_EQ(DrawCropsOn(line, ModelImages::Create(model).value(), sides, 0)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

constexpr int32_t kNone = -100;
constexpr int32_t kImage = 1000;
constexpr int32_t kStart = 1001;
constexpr int32_t kVideo = 1002;
constexpr int32_t kAudio = 1003;

class TokenRunsTest : public testing::Test {
 protected:
  TokenRunsTest() : tokenizer_(*MakeTokenizer("bytes")) {
    special_.set_image(kImage);
    special_.set_im_start(kStart);
    special_.set_video(kVideo);
    special_.set_audio(kAudio);
  }

  std::vector<TokenRun> Find(const std::vector<int32_t>& ids,
                             const std::vector<int32_t>& labels) const {
    return FindTokenRuns(ids, labels, special_, *tokenizer_);
  }

  v1::TokenIds special_;
  const std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TokenRunsTest, NoTokens) { EXPECT_THAT(Find({}, {}), IsEmpty()); }

// The label of a token is the next one: what is supervised begins after it.
TEST_F(TokenRunsTest, ALabelSupervisesTheNextToken) {
  EXPECT_THAT(Find({'a', 'b', 'c', 'd'}, {kNone, 'c', kNone, kNone}),
              ElementsAre(FieldsAre(0, 2, std::nullopt, false, "ab", false),
                          FieldsAre(2, 1, std::nullopt, true, "c", false),
                          FieldsAre(3, 1, std::nullopt, false, "d", false)));
}

TEST_F(TokenRunsTest, PlaceholdersAreARunWithoutText) {
  EXPECT_THAT(Find({'a', kImage, kImage, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, std::nullopt, false, "a", false),
                          FieldsAre(1, 2, MediumKind::kImage, false, "", false),
                          FieldsAre(3, 1, std::nullopt, false, "b", false)));
}

TEST_F(TokenRunsTest, PlaceholdersOfVideosAreRunsOfTheirOwn) {
  EXPECT_THAT(Find({kImage, kVideo, kVideo, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, MediumKind::kImage, false, "", false),
                          FieldsAre(1, 2, MediumKind::kVideo, false, "", false),
                          FieldsAre(3, 1, std::nullopt, false, "b", false)));
}

TEST_F(TokenRunsTest, PlaceholdersOfAudioAreRunsOfTheirOwn) {
  EXPECT_THAT(Find({kVideo, kAudio, kAudio, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, MediumKind::kVideo, false, "", false),
                          FieldsAre(1, 2, MediumKind::kAudio, false, "", false),
                          FieldsAre(3, 1, std::nullopt, false, "b", false)));
}

// "ü" is two bytes, thus two tokens.
TEST_F(TokenRunsTest, UnknownIdsHaveNamesAndCharactersStayWhole) {
  EXPECT_THAT(
      Find({0xc3, 0xbc, kStart, 0xc3, 0xbc, 2000},
           {kNone, kNone, kNone, kNone, kNone, kNone}),
      ElementsAre(FieldsAre(0, 6, std::nullopt, false,
                            "\xc3\xbc<|im_start|>\xc3\xbc<|2000|>", false)));
}

}  // namespace
}  // namespace ballast
