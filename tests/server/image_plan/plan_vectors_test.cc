// Compares plans and pixels at odd sizes with the image processors of
// transformers; make_plan_vectors.py made the vectors.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/config/profiles.h"
#include "server/image/crop_maker.h"
#include "server/image/image.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_planner.h"
#include "tests/server/image/test_images.h"

namespace ballast {
namespace {

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

}  // namespace
}  // namespace ballast
