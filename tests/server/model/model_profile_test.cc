#include "server/model/model_profile.h"
#include "server/model/model_images.h"
#include "server/model/profiles.h"
#include "tests/fakes/shared_dir.h"

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Model MakeModel(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

TEST(ApplyModelProfile, SetsTheValuesOfTheCheckpoints) {
  const v1::Model qwen2 = MakeModel("qwen2_5_vl");
  EXPECT_EQ(qwen2.min_pixels(), 56 * 56);
  EXPECT_EQ(qwen2.max_pixels(), 28 * 28 * 16384);
  EXPECT_EQ(qwen2.patch(), 14u);
  EXPECT_EQ(qwen2.merge(), 2u);
  EXPECT_EQ(qwen2.temporal_patch(), 2u);
  EXPECT_THAT(qwen2.mean(), ElementsAre(0.48145466, 0.4578275, 0.40821073));
  EXPECT_THAT(qwen2.std(), ElementsAre(0.26862954, 0.26130258, 0.27577711));
  EXPECT_EQ(qwen2.token_ids().image(), 151655);
  EXPECT_EQ(qwen2.token_ids().pad(), 151643);
  EXPECT_EQ(qwen2.position_axes(), 3u);

  const v1::Model qwen3 = MakeModel("qwen3_vl");
  EXPECT_EQ(qwen3.min_pixels(), 256 * 256);
  EXPECT_EQ(qwen3.max_pixels(), 4096 * 4096);
  EXPECT_EQ(qwen3.patch(), 16u);
  EXPECT_THAT(qwen3.mean(), ElementsAre(0.5, 0.5, 0.5));
  EXPECT_THAT(qwen3.std(), ElementsAre(0.5, 0.5, 0.5));
  EXPECT_EQ(qwen3.token_ids().video(), 151656);

  const v1::TokenIds ids = MakeModel("qwen3_5_vl").token_ids();
  EXPECT_EQ(ids.image(), 248056);
  EXPECT_EQ(ids.video(), 248057);
  EXPECT_EQ(ids.vision_start(), 248053);
  EXPECT_EQ(ids.vision_end(), 248054);
  EXPECT_EQ(ids.im_start(), 248045);
  EXPECT_EQ(ids.im_end(), 248046);
  EXPECT_EQ(ids.end_of_text(), 248044);
  EXPECT_EQ(ids.pad(), 248044);
}

TEST(ApplyModelProfile, EveryProfileIsComplete) {
  for (const std::string& name :
       ProfileNames([](const v1::ModelProfile& p) { return !IsEncoder(p); })) {
    EXPECT_THAT(MissingModelKeys(MakeModel(name)), ElementsAre()) << name;
  }
}

TEST(ApplyModelProfile, KeepsGivenValues) {
  v1::Model model;
  model.set_profile("qwen2_vl");
  model.set_max_pixels(1003520);
  model.add_std(1);
  model.mutable_token_ids()->set_pad(0);
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  EXPECT_EQ(model.min_pixels(), 3136u);
  EXPECT_EQ(model.max_pixels(), 1003520u);
  EXPECT_THAT(model.std(), ElementsAre(1));
  EXPECT_EQ(model.token_ids().pad(), 0);
  EXPECT_EQ(model.token_ids().image(), 151655);
}

TEST(ApplyModelProfile, NamesAnUnknownProfile) {
  v1::Model model;
  model.set_profile("qwen9");
  const absl::Status status = ApplyModelProfile(&model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("qwen9"), HasSubstr("qwen3_5_vl")));
}

TEST(ApplyModelProfile, NamesMissingKeysWithoutAProfile) {
  v1::Model model = MakeModel("qwen3_vl");
  model.clear_profile();
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  model.clear_mean();
  model.mutable_token_ids()->clear_im_end();
  const absl::Status status = ApplyModelProfile(&model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("mean, token_ids.im_end"), Not(HasSubstr("std"))));
}

// Another family is not normalised as Qwen's models are.
TEST(ApplyModelProfile, AFamilyOfOnesOwnHasNoMeanOfQwens) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.mutable_image_family()->set_rule(v1::ImageFamily::RULE_FIXED_SIZE);
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  EXPECT_TRUE(model.mean().empty());
  EXPECT_TRUE(model.std().empty());
}

// LLaVA-OneVision's and LLaVA-1.5's processors pad squares with their mean.
TEST(ApplyModelProfile, PadsWithTheMeanThatIsGiven) {
  for (const char* profile : {"llava_onevision", "llava1_5_pad"}) {
    v1::Model model;
    model.set_profile(profile);
    for (const double mean : {0.25, 0.5, 1.0}) model.add_mean(mean);
    ASSERT_TRUE(ApplyModelProfile(&model).ok());
    EXPECT_THAT(model.image_family().background(), ElementsAre(63, 127, 255));
  }
}

// The grid of an image that is one crop, and its share of a sample.
struct Resized {
  ImageGrid grid;
  ModelImages::Share share;
};

absl::StatusOr<Resized> Resize(uint32_t height, uint32_t width,
                               const v1::Model& model) {
  const auto images = ModelImages::Create(model);
  if (!images.ok()) return images.status();
  const std::vector<ImageSize> sides = {{width, height}};
  std::vector<ImageGrid> grids;
  const auto share = images->Add(sides, 0, &grids);
  if (!share.ok()) return share.status();
  EXPECT_EQ(grids.size(), 1u);
  return Resized{grids[0], *share};
}

struct ResizeCase {
  uint32_t height;
  uint32_t width;
  uint32_t resized_h;
  uint32_t resized_w;
  uint32_t tokens;
};

void ExpectResizes(const v1::Model& model,
                   const std::vector<ResizeCase>& cases) {
  for (const ResizeCase& c : cases) {
    const absl::StatusOr<Resized> resized = Resize(c.height, c.width, model);
    ASSERT_TRUE(resized.ok()) << resized.status();
    const ImageGrid& grid = resized->grid;
    SCOPED_TRACE(testing::Message() << c.height << "x" << c.width);
    EXPECT_EQ(grid.height, c.resized_h);
    EXPECT_EQ(grid.width, c.resized_w);
    EXPECT_EQ(grid.grid_h, c.resized_h / model.patch());
    EXPECT_EQ(grid.grid_w, c.resized_w / model.patch());
    EXPECT_EQ(ImageTokens(grid, model), c.tokens);
    EXPECT_EQ(resized->share.placeholders, c.tokens);
  }
}

// Expected values from smart_resize of transformers, at the checkpoints'
// limits.
TEST(ImagesOfQwen, AgreesWithTransformers) {
  ExpectResizes(MakeModel("qwen2_vl"), {{480, 640, 476, 644, 391},
                                        {1080, 1920, 1092, 1932, 2691},
                                        {1365, 2048, 1372, 2044, 3577},
                                        {100, 100, 112, 112, 16},
                                        {42, 70, 56, 56, 4},  // half to even
                                        {48, 80, 56, 84, 6},
                                        {5000, 5000, 3556, 3556, 16129},
                                        {14, 42, 56, 112, 8},
                                        {561, 278, 560, 280, 200}});
  ExpectResizes(MakeModel("qwen3_vl"), {{480, 640, 480, 640, 300},
                                        {1080, 1920, 1088, 1920, 2040},
                                        {1365, 2048, 1376, 2048, 2752},
                                        {100, 100, 256, 256, 64},
                                        {42, 70, 224, 352, 77},
                                        {5000, 5000, 4096, 4096, 16384}});
}

TEST(ImagesOfQwen, RefusesImagesThatCannotBeResized) {
  const v1::Model model = MakeModel("qwen2_vl");
  for (const auto& [height, width] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 10},
                                                  {10, 0},
                                                  {1, 201},
                                                  {0xffffffff, 0xffffffff},
                                                  {(1u << 26) + 1, 1u << 26}}) {
    EXPECT_EQ(Resize(height, width, model).status().code(),
              absl::StatusCode::kInvalidArgument)
        << height << "x" << width;
  }
  EXPECT_TRUE(Resize(1, 200, model).ok());
  EXPECT_FALSE(Resize(10, 10, v1::Model()).ok());
}

TEST(ImagesOfQwen, SurvivesAbsurdLimits) {
  v1::Model model = MakeModel("qwen2_vl");
  model.set_min_pixels(~uint64_t{0});
  model.set_max_pixels(~uint64_t{0});
  EXPECT_FALSE(Resize(1u << 20, 1u << 20, model).ok());
  model.set_min_pixels(0);
  EXPECT_FALSE(Resize(5, 5, model).ok());  // rounds to nothing
  model.set_patch(0xffffffff);
  model.set_merge(0xffffffff);
  EXPECT_FALSE(Resize(5, 5, model).ok());
}

TEST(ImagesOfQwen, AgreesWithTheGoldenImages) {
  constexpr char kGolden[] = "golden/images.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  std::ifstream file(*shared + "/" + kGolden);
  const auto golden =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(golden.is_object());
  v1::Model qwen2 = MakeModel("qwen2_vl");
  qwen2.set_max_pixels(1003520);
  v1::Model qwen3 = MakeModel("qwen3_vl");
  qwen3.set_max_pixels(1048576);
  int compared = 0;
  for (const auto& image : golden["images"]) {
    for (const v1::Model& model : {qwen2, qwen3}) {
      const auto& want = image["profiles"][model.profile()];
      SCOPED_TRACE(image["file"].get<std::string>() + " " + model.profile());
      ExpectResizes(model, {{image["height"], image["width"], want["resized_h"],
                             want["resized_w"], want["image_tokens"]}});
      ++compared;
    }
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace ballast
