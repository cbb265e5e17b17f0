#include "server/image_plan/image_planner.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/profiles.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/tile_grid.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

ImagePlanner GetPlanner(const std::string& name) {
  return ImagePlanner::Create(*FindImageFamily(name)).value();
}

ImagePlan GetPlan(const std::string& family, uint32_t height, uint32_t width) {
  return GetPlanner(family).Plan(height, width).value();
}

// Counts that follow from the family's description, not from its code.
TEST(ImagePlannerTest, CountsTokensAndPatches) {
  // 336/14 = 24 patches a side.
  EXPECT_EQ(GetPlan("llava1_5", 500, 700).tokens, 576u);
  EXPECT_EQ(GetPlan("llava1_5_pad", 500, 700).tokens, 576u);
  // 448/14 = 32, merged by 2: 256 a tile, and two tokens around them.
  const ImagePlan tiles = GetPlan("internvl3", 448, 896);
  EXPECT_EQ(tiles.crops, 3u);
  EXPECT_EQ(tiles.tokens, 3 * 256 + 2u);
  EXPECT_EQ(tiles.patches, 3 * 1024u);
  EXPECT_EQ(tiles.tile_rows, 1u);
  EXPECT_EQ(tiles.tile_columns, 2u);
  // 896/14 = 64, merged by 4.
  EXPECT_EQ(GetPlan("gemma3", 30, 3000).tokens, 256u);
  EXPECT_EQ(GetPlan("gemma3_pan_and_scan", 600, 1200).tokens, 3 * 256u);
  EXPECT_EQ(GetPlan("gemma3_pan_and_scan", 600, 700).crops, 1u);
  // 1024x768 pixels are 64x48 patches of 16, with a token after each row.
  EXPECT_EQ(GetPlan("pixtral", 1536, 2048).tokens, 48 * 65u);
  // 4 by 4 tiles and a global view, (364/14/2)^2 tokens each.
  EXPECT_EQ(GetPlan("idefics3", 900, 900).tokens, 17 * 169u);
  EXPECT_EQ(GetPlan("smolvlm", 900, 900).crops, 17u);
  EXPECT_EQ(GetPlan("siglip", 5, 9).tokens, 27 * 27u);
  EXPECT_EQ(GetPlan("llama4", 336, 336).tokens, 144u);
  EXPECT_EQ(GetPlan("llama4", 672, 336).tokens, 3 * 144u);
}

// A plan of Qwen's rule is one crop.
TEST(ImagePlannerTest, OneCropTakesOneStage) {
  const ImagePlan plan = GetPlan("ernie4_5_vl", 428, 640);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.stages[0].from, (PixelRect{0, 0, 428, 640}));
  EXPECT_EQ(plan.stages[0].crop, (PixelRect{0, 0, 420, 644}));
  EXPECT_EQ(plan.tile_rows, 0u);
  EXPECT_EQ(plan.tokens, 15 * 23u);
}

TEST(ImagePlannerTest, CropsLieInsideTheirCanvasAndPlacesToo) {
  for (const std::string& name : ProfileNames(TakesImages)) {
    const ImagePlanner planner = GetPlanner(name);
    for (uint32_t height = 1; height < 3000; height = height * 2 + 13) {
      for (uint32_t width = 1; width < 3000; width = width * 2 + 31) {
        const absl::StatusOr<ImagePlan> plan = planner.Plan(height, width);
        if (!plan.ok()) continue;
        SCOPED_TRACE(testing::Message()
                     << name << " " << height << "x" << width);
        uint32_t crops = 0;
        for (const PlanStage& stage : plan->stages) {
          EXPECT_LE(stage.place.top + stage.place.height, stage.height);
          EXPECT_LE(stage.place.left + stage.place.width, stage.width);
          EXPECT_LE(stage.crop.top + stage.rows * stage.crop.height,
                    stage.height);
          EXPECT_LE(stage.crop.left + stage.columns * stage.crop.width,
                    stage.width);
          EXPECT_GE(stage.from.height * stage.from.width, 1u);
          crops += stage.rows * stage.columns;
        }
        EXPECT_EQ(plan->crops, crops);
        EXPECT_GE(crops, 1u);
        EXPECT_GE(plan->tokens, 1u);
      }
    }
  }
}

TEST(ImagePlannerTest, CutsOnlyImagesThatStandAlone) {
  const ImagePlanner planner = GetPlanner("llava_onevision");
  EXPECT_GT(planner.Plan(900, 1200, 1).value().crops, 2u);
  const ImagePlan beside = planner.Plan(900, 1200, 2).value();
  EXPECT_EQ(beside.crops, 1u);
  EXPECT_EQ(beside.tile_rows, 0u);
  // (384/14)^2 tokens of the square and a newline.
  EXPECT_EQ(beside.tokens, 27 * 27 + 1u);
  EXPECT_EQ(beside.placeholders, beside.tokens);
  EXPECT_EQ(beside.stages[0].height, 1200u);
  EXPECT_EQ(beside.stages[0].background[0], 122);
}

TEST(ImagePlannerTest, PlaceholdersAreTokensThatNoTextWrites) {
  EXPECT_EQ(GetPlan("internvl3", 448, 896).placeholders, 3 * 256u);
  // A newline a row and two more are placeholders of their own.
  const ImagePlan hunyuan = GetPlan("hunyuan_vl", 512, 1024);
  EXPECT_EQ(hunyuan.tokens, 16 * (32 + 1) + 2u);
  EXPECT_EQ(hunyuan.placeholders, hunyuan.tokens);
  EXPECT_EQ(GetPlan("pixtral", 1536, 2048).placeholders, 48 * 64u);
}

// The sides that the plain bisection of SigLIP 2's processor finds.
TileShape Bisected(double height, double width, double patch, double most) {
  double low = 1e-6;
  double high = 100.0;
  const auto side = [&](double scale, double length) {
    return std::max(patch, std::ceil(length * scale / patch) * patch);
  };
  while (high - low >= 1e-5) {
    const double scale = (low + high) / 2;
    const double patches =
        side(scale, height) / patch * (side(scale, width) / patch);
    (patches <= most ? low : high) = scale;
  }
  return {static_cast<uint32_t>(side(low, height)),
          static_cast<uint32_t>(side(low, width))};
}

TEST(ImagePlannerTest, FindsTheSidesOfAPlainBisection) {
  ImageFamily family = *FindImageFamily("siglip2");
  for (const auto& [patch, most] :
       {std::pair{16u, 256u}, {14u, 729u}, {16u, 1u}, {13u, 4096u}}) {
    family.patch = patch;
    family.max_patches = most;
    const ImagePlanner planner = ImagePlanner::Create(family).value();
    for (uint32_t height = 1; height < 40'000'000; height += height / 7 + 1) {
      for (uint32_t width = 1; width < 40'000'000; width += width / 5 + 3) {
        const TileShape wanted = Bisected(height, width, patch, most);
        const ImagePlan plan = planner.Plan(height, width).value();
        ASSERT_EQ(plan.stages[0].height, wanted.height)
            << patch << " " << height << "x" << width;
        ASSERT_EQ(plan.stages[0].width, wanted.width)
            << patch << " " << height << "x" << width;
      }
    }
  }
}

TEST(ImagePlannerTest, RefusesSizesThatNoProcessorTakes) {
  const ImagePlanner planner = GetPlanner("ernie4_5_vl");
  EXPECT_EQ(planner.Plan(0, 5).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(planner.Plan(5, (1u << 26) + 1).ok());
  EXPECT_THAT(std::string(planner.Plan(1, 201).status().message()),
              HasSubstr("ratio of at most 200"));
  EXPECT_TRUE(planner.Plan(1, 200).ok());
  // Shrinks to 1024x0.256 pixels.
  EXPECT_FALSE(GetPlanner("pixtral").Plan(1, 4000).ok());
}

TEST(ImagePlannerTest, RefusesFamiliesWithoutTheirNumbers) {
  const auto message = [](ImageFamily family) {
    return std::string(
        ImagePlanner::Create(std::move(family)).status().message());
  };
  ImageFamily family = *FindImageFamily("internvl3");
  family.name = "mine";
  family.tile = 0;
  EXPECT_EQ(message(family),
            "image family \"mine\": tile is 0; wanted the side of a patch to "
            "65536");
  family = *FindImageFamily("llava_next");
  family.canvases.push_back({336, 335});
  EXPECT_THAT(message(family), HasSubstr("335; wanted a multiple of tile"));
  family = *FindImageFamily("gemma4");
  family.max_patches = 0;
  EXPECT_THAT(message(family), HasSubstr("max_patches is 0"));
  family = *FindImageFamily("glm4v");
  family.min_pixels = family.max_pixels + 1;
  EXPECT_THAT(message(family), HasSubstr("at least min_pixels"));
  EXPECT_EQ(FindImageFamily("unheard_of"), nullptr);
}

}  // namespace
}  // namespace ballast
