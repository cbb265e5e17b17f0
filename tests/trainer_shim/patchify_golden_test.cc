// Compares with the values of Hugging Face's processors in golden/images.json
// of $BALLAST_SHARED_DIR, over the photographs there.

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/media/image/image.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/shared_dir.h"
#include "trainer_shim/patchify.h"

namespace ballast {
namespace {

struct Profile {
  const char* name;
  uint32_t patch;
  std::array<double, 3> mean;
  std::array<double, 3> std;
};
const Profile kProfiles[] = {
    {"qwen2_vl",
     14,
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711}},
    {"qwen3_vl", 16, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
};

class PatchifyGoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr char kGolden[] = "golden/images.json";
    const std::optional<std::string> shared = SharedDirWith(kGolden);
    if (!shared) GTEST_SKIP() << NotShared(kGolden);
    shared_ = *shared;
    golden_ = nlohmann::json::parse(ReadFile(shared_ + "/" + kGolden), nullptr,
                                    false);
    ASSERT_TRUE(golden_.is_object());
  }

  RgbImage Decode(const nlohmann::json& image) const {
    const std::string file = image["file"];
    auto rgb =
        ImageDecoder().Decode(ReadFile(shared_ + "/corpus/images/" + file));
    EXPECT_TRUE(rgb.ok()) << file << ": " << rgb.status();
    return rgb.ok() ? *std::move(rgb) : RgbImage();
  }

  std::string shared_;
  nlohmann::json golden_;
};

// Qwen2VLImageProcessorPil resizes with Pillow: every value must be equal to
// the last bit. Qwen2VLImageProcessor resizes with torchvision, whose bytes
// sometimes differ from Pillow's by one: every value must equal, to the last
// bit, that of the same byte or of a neighbouring one.
TEST_F(PatchifyGoldenTest, ValuesEqualHuggingFaces) {
  size_t images = 0;
  for (const auto& image : golden_["images"]) {
    const RgbImage rgb = Decode(image);
    for (const Profile& profile : kProfiles) {
      SCOPED_TRACE(image["file"].get<std::string>() + " " + profile.name);
      const auto& want = image["profiles"][profile.name];
      const uint32_t w = want["resized_w"], h = want["resized_h"];
      std::vector<uint8_t> pixels(uint64_t{3} * w * h);
      ASSERT_TRUE(Resize(rgb, Resampling(), w, h, absl::MakeSpan(pixels)).ok());
      const uint32_t grid_h = want["grid_thw"][1], grid_w = want["grid_thw"][2];
      const PatchShape shape = {profile.patch, 2, 2};
      const NormaliseTable pil(profile.mean, profile.std, Normalisation::kPil);
      const NormaliseTable torchvision(profile.mean, profile.std,
                                       Normalisation::kTorchvision);
      std::vector<float> values(uint64_t{grid_h} * grid_w * shape.row());

      const auto& exact = want["Qwen2VLImageProcessorPil"];
      Patchify(pixels.data(), grid_h, grid_w, shape, pil, values.data());
      for (size_t r = 0; r < exact["rows"].size(); ++r) {
        for (size_t c = 0; c < exact["cols"].size(); ++c) {
          const size_t row = exact["rows"][r], col = exact["cols"][c];
          EXPECT_EQ(values[row * shape.row() + col],
                    exact["values"][r][c].get<float>())
              << row << "," << col;
        }
      }
      double sum = 0, abs_sum = 0;
      for (const float value : values) {
        sum += value;
        abs_sum += std::abs(value);
      }
      const double wanted_abs = exact["abs_sum"];
      EXPECT_NEAR(sum, exact["sum"].get<double>(), 1e-9 * wanted_abs);
      EXPECT_NEAR(abs_sum, wanted_abs, 1e-9 * wanted_abs);

      const auto& near = want["Qwen2VLImageProcessor"];
      Patchify(pixels.data(), grid_h, grid_w, shape, torchvision,
               values.data());
      for (size_t r = 0; r < near["rows"].size(); ++r) {
        for (size_t c = 0; c < near["cols"].size(); ++c) {
          const size_t row = near["rows"][r], col = near["cols"][c];
          const auto& table =
              torchvision.floats(col / (2 * profile.patch * profile.patch));
          const float ours = values[row * shape.row() + col];
          const float theirs = near["values"][r][c];
          const int byte = std::lower_bound(table.begin(), table.end(), ours) -
                           table.begin();
          EXPECT_TRUE(theirs == ours ||
                      (byte > 0 && theirs == table[byte - 1]) ||
                      (byte < 255 && theirs == table[byte + 1]))
              << row << "," << col << ": " << theirs << ", ours " << ours;
        }
      }
      ++images;
    }
  }
  EXPECT_EQ(images, 2 * golden_["images"].size());
  EXPECT_GT(images, 0);
}

}  // namespace
}  // namespace ballast
