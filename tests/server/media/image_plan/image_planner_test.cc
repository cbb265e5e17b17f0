#include "server/media/image_plan/image_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/media/image/crop_maker.h"
#include "server/media/image/image.h"
#include "server/media/image_plan/image_text.h"
#include "server/model/profiles.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Vectors of processors are of transformers' rules.
std::string ByTransformers(const nlohmann::json& family) {
  return NameUnderRules(family.get<std::string>(),
                        v1::Model::RULES_TRANSFORMERS);
}

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
  // (384/14/3)^2 and (512/16/4)^2 tokens.
  EXPECT_EQ(GetPlan("smolvlm", 900, 900).tokens, 17 * 81u);
  EXPECT_EQ(GetPlan("smolvlm_500m", 900, 900).tokens, 17 * 64u);
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

// Compares plans and pixels at odd sizes with the image processors of
// transformers; make_plan_vectors.py made the vectors.

// The tokens of an image's text.
struct ImageTextCounts {
  uint64_t placeholders = 0;
  uint64_t special_tokens = 0;
  // Bytes of all other text. The number of their tokens depends on the
  // tokenizer and, at both ends of the image, on the adjacent text.
  uint64_t text_bytes = 0;
};

ImageTextCounts CountImageText(absl::Span<const ImageTextPiece> pieces) {
  ImageTextCounts counts;
  for (const ImageTextPiece& piece : pieces) {
    counts.placeholders += piece.placeholders;
    counts.text_bytes += piece.text.size();
    for (const absl::string_view special : SpecialTokensIn(piece.text)) {
      ++counts.special_tokens;
      counts.text_bytes -= special.size();
    }
  }
  return counts;
}

// As in make_plan_vectors.py.
RgbImage Picture(uint32_t width, uint32_t height) {
  RgbImage image{width, height, {}};
  image.pixels.resize(size_t{width} * height * 3);
  uint8_t* next = image.pixels.data();
  uint32_t state = width * 65536 + height;
  for (uint32_t i = 0; i < width * height * 3; ++i) {
    state = state * 1664525 + 1013904223;
    *next++ = i / 97 % 3 == 0 ? (i / 17 % 2) * 255 : state >> 24;
  }
  return image;
}

TEST(PlanVectorsTest, OddSizesMatchTheProcessors) {
  const nlohmann::json vectors = ReadJsonOrFail(
      "tests/server/media/image_plan/testdata/plan_vectors.json");
  ASSERT_GT(vectors.size(), 400u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const ImageFamily* family =
        FindImageFamily(ByTransformers(vector["family"]));
    ASSERT_NE(family, nullptr);
    const ImagePlanner planner = ImagePlanner::Create(*family).value();
    const uint32_t width = vector["width"];
    const uint32_t height = vector["height"];
    const absl::StatusOr<ImagePlan> plan = planner.Plan(height, width);
    if (!vector.contains("crops") && !vector.contains("patches")) {
      EXPECT_FALSE(plan.ok());
      continue;
    }
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Resampling resampling = {
        .filter = family->filter,
        .library = vector["library"] == "torchvision"
                       ? ResampleLibrary::kTorchvision
                       : ResampleLibrary::kPillow12};
    const absl::StatusOr<std::vector<RgbImage>> crops =
        MakeCrops(Picture(width, height), *plan, resampling);
    ASSERT_TRUE(crops.ok()) << crops.status();
    if (vector.contains("patches")) {
      const PatchBytes patches = ArrangePatches(*crops, *family);
      EXPECT_EQ(nlohmann::json(patches.shape), vector["patches"]["shape"]);
      EXPECT_EQ(Sha256Hex(patches.values),
                vector["patches"]["sha256"].get<std::string>());
      continue;
    }
    const nlohmann::json& wanted = vector["crops"];
    EXPECT_EQ(crops->size(), wanted["count"]);
    std::string hashes;
    for (const RgbImage& crop : *crops) {
      EXPECT_EQ(crop.height, wanted["height"]);
      EXPECT_EQ(crop.width, wanted["width"]);
      absl::StrAppend(&hashes, Sha256Hex(crop.pixels));
    }
    EXPECT_EQ(Sha256Hex(std::vector<uint8_t>(hashes.begin(), hashes.end())),
              wanted["sha256"].get<std::string>());
  }
}

// Compares plans with the authors' own functions, which were run apart:
// mistral-common's image.py, InternVL's dynamic_preprocess with
// max_dynamic_patch
// // images, gemma_pytorch's pan_and_scan.py, LLaVA-NeXT's mm_utils.py and
// llava_arch.py, LLaVA's expand2square, OpenCV's resize.
class AuthorVectorsTest : public ::testing::Test {
 protected:
  // Calls visit(plan, numbers) for each size of a family. A vector begins with
  // width and height, and with `has_images` the images of the sample.
  template <typename Visit>
  void ForEach(const std::string& family, bool has_images, Visit visit) {
    const ImagePlanner planner = GetPlanner(family);
    ASSERT_FALSE(vectors_[family].empty());
    for (const nlohmann::json& vector : vectors_[family]) {
      SCOPED_TRACE(family + vector.dump().substr(0, 40));
      const absl::StatusOr<ImagePlan> plan = planner.Plan(
          vector[1], vector[0], has_images ? vector[2].get<uint32_t>() : 1);
      ASSERT_TRUE(plan.ok()) << plan.status();
      visit(*plan, vector);
    }
  }

  const nlohmann::json vectors_ =
      ReadJsonOrFail("tests/server/media/image_plan/testdata/author_vectors.json");
};

TEST_F(AuthorVectorsTest, PixtralRoundsSides) {
  ForEach("pixtral", false, [](const ImagePlan& plan, const auto& vector) {
    EXPECT_EQ(plan.stages[0].crop.width, 16 * vector[2].template get<int>());
    EXPECT_EQ(plan.stages[0].crop.height, 16 * vector[3].template get<int>());
  });
}

TEST_F(AuthorVectorsTest, InternVlSharesTilesAmongTheImagesOfASample) {
  ForEach("internvl3", true, [](const ImagePlan& plan, const auto& vector) {
    EXPECT_EQ(plan.crops, vector[5]);
    EXPECT_EQ(std::max(plan.tile_columns, 1u), vector[3]);
    EXPECT_EQ(std::max(plan.tile_rows, 1u), vector[4]);
  });
}

TEST_F(AuthorVectorsTest, GemmaPansFromARatioOfThreeHalves) {
  ForEach("gemma3_pan_and_scan", false,
          [](const ImagePlan& plan, const auto& vector) {
            const uint32_t crops = vector[2];
            ASSERT_EQ(plan.crops, crops == 1 ? 1 : crops + 1);
            for (uint32_t i = 1; i < plan.crops; ++i) {
              // Pillow fills what lies beyond the image with black.
              const PixelRect& from = plan.stages[i].from;
              EXPECT_EQ(from.top, vector[3 + 4 * (i - 1)]);
              EXPECT_EQ(from.left, vector[4 + 4 * (i - 1)]);
            }
          });
}

TEST_F(AuthorVectorsTest, LlavaChoosesCanvasesAndCountsTokens) {
  for (const char* family : {"llava_next", "llava_onevision"}) {
    ForEach(family, false, [](const ImagePlan& plan, const auto& vector) {
      EXPECT_EQ(plan.stages[1].width, vector[2]);
      EXPECT_EQ(plan.stages[1].height, vector[3]);
      EXPECT_EQ(plan.tokens, vector[4]);
    });
  }
}

TEST_F(AuthorVectorsTest, LlavaPadsToASquare) {
  const ImagePlanner planner = GetPlanner("llava1_5");
  for (const nlohmann::json& vector : vectors_["llava1_5"]) {
    const ImagePlan plan = planner.Plan(vector[1], vector[0]).value();
    const auto crops = MakeCrops(Picture(vector[0], vector[1]), plan, {});
    ASSERT_TRUE(crops.ok()) << crops.status();
    EXPECT_EQ(Sha256Hex((*crops)[0].pixels), vector[2]);
  }
}

// OpenCV keeps float32 between its passes and after them; 8 bits clip what goes
// beyond black and white. The pictures are noise of both extremes.
TEST_F(AuthorVectorsTest, OpenCvsCubicDiffersByRoundingAndClipping) {
  for (const nlohmann::json& vector : vectors_["opencv_cubic"]) {
    const std::string wanted =
        absl::HexStringToBytes(vector[4].get<std::string>());
    std::vector<uint8_t> pixels(wanted.size());
    ASSERT_TRUE(Resize(Picture(vector[0], vector[1]),
                       {.filter = ResampleFilter::kOpenCvCubic}, vector[2],
                       vector[3], absl::MakeSpan(pixels))
                    .ok());
    double total = 0;
    for (size_t i = 0; i < pixels.size(); ++i) {
      total += std::abs(pixels[i] - static_cast<uint8_t>(wanted[i]));
    }
    EXPECT_LT(total / pixels.size(), 2.5) << vector.dump().substr(0, 20);
  }
}

// Compares the texts of images with those that the processors of transformers
// write; make_text_vectors.py made the vectors.

nlohmann::json Written(const std::vector<ImageTextPiece>& pieces) {
  nlohmann::json written = nlohmann::json::array();
  for (const ImageTextPiece& piece : pieces) {
    if (piece.placeholders != 0) {
      written.push_back(piece.placeholders);
    } else {
      written.push_back(piece.text);
    }
  }
  return written;
}

TEST(TextVectorsTest, TextsEqualThoseOfTheProcessors) {
  const nlohmann::json vectors = ReadJsonOrFail(
      "tests/server/media/image_plan/testdata/text_vectors.json");
  ASSERT_GT(vectors.size(), 400u);
  std::set<std::string> families;
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump().substr(0, 200));
    const ImageFamily* family =
        FindImageFamily(ByTransformers(vector["family"]));
    ASSERT_NE(family, nullptr);
    families.insert(vector["family"].get<std::string>());
    const ImagePlanner planner = ImagePlanner::Create(*family).value();
    const absl::StatusOr<ImagePlan> plan =
        planner.Plan(vector["height"], vector["width"], vector["images"]);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto pieces = ImageText(*family, *plan, vector["image"]);
    EXPECT_EQ(Written(pieces).dump(), vector["text"].dump());
    const ImageTextCounts counts = CountImageText(pieces);
    EXPECT_EQ(counts.placeholders, plan->placeholders);
    // Other text takes a token a byte in the vectors' tokenizers.
    EXPECT_EQ(counts.placeholders + counts.special_tokens + counts.text_bytes,
              vector["tokens"]);
  }
  // All but the encoders, which write no text, Qwen's, which have vectors of
  // whole texts, and LLaVA-Video, whose images are LLaVA-OneVision's.
  for (const std::string& name : ProfileNames(TakesImages)) {
    const v1::ModelProfile& profile = *FindProfile(name);
    const bool has_others =
        IsEncoder(profile) || profile.has_token_ids() || name == "llava_video";
    EXPECT_EQ(families.count(name), has_others ? 0u : 1u) << name;
  }
}

// Families of one's own: what is not refused is written as it is counted.
TEST(ImageTextTest, WritesAsManyPlaceholdersAsThePlanHas) {
  uint32_t planned = 0;
  for (const std::string& name : ProfileNames(TakesImages)) {
    for (uint32_t change = 0; change < 32; ++change) {
      ImageFamily family = *FindImageFamily(name);
      if (family.marks.placeholder.empty()) continue;
      if (change & 1) family.tokens_a_row = 1;
      if (change & 2) family.tokens_an_image = 3;
      if (change & 4) family.marks.before = "<a>";
      if (change & 8) family.marks.tile_seam = "<b>";
      if (change & 16) family.marks.row_end = family.marks.last_row_end = "";
      const auto planner = ImagePlanner::Create(family);
      if (!planner.ok()) continue;
      for (const auto& [height, width] :
           {std::pair{500u, 500u}, {300u, 1100u}, {1500u, 700u}}) {
        for (const uint32_t images : {1u, 2u}) {
          const ImagePlan plan = planner->Plan(height, width, images).value();
          EXPECT_EQ(CountImageText(ImageText(family, plan, 0)).placeholders,
                    plan.placeholders)
              << name << " " << change << " " << height << "x" << width;
          ++planned;
        }
      }
    }
  }
  EXPECT_GT(planned, 1000u);
}

}  // namespace
}  // namespace ballast
