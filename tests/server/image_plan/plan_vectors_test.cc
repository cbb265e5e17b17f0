// Compares plans and pixels at odd sizes with the image processors of
// transformers; make_plan_vectors.py made the vectors.
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/config/profiles.h"
#include "server/image/crop_maker.h"
#include "server/image/image.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_planner.h"
#include "server/image_plan/image_text.h"
#include "tests/server/image/test_images.h"

namespace ballast {
namespace {

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
  uint32_t state = width * 65536 + height;
  for (uint32_t i = 0; i < width * height * 3; ++i) {
    state = state * 1664525 + 1013904223;
    image.pixels.push_back(i / 97 % 3 == 0 ? (i / 17 % 2) * 255 : state >> 24);
  }
  return image;
}

TEST(PlanVectorsTest, OddSizesMatchTheProcessors) {
  const nlohmann::json vectors =
      ReadJsonOrFail("tests/server/image_plan/testdata/plan_vectors.json");
  ASSERT_GT(vectors.size(), 400u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    const ImageFamily* family =
        FindImageFamily(vector["family"].get<std::string>());
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
  const nlohmann::json vectors =
      ReadJsonOrFail("tests/server/image_plan/testdata/text_vectors.json");
  ASSERT_GT(vectors.size(), 400u);
  std::set<std::string> families;
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump().substr(0, 200));
    const ImageFamily* family =
        FindImageFamily(vector["family"].get<std::string>());
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
