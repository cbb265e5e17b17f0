#include "trainer_shim/host/host_image_decoder.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A grey picture whose quantisation is all ones decodes to what was encoded,
// but for rounding: an oracle without libjpeg's decoder.
TEST(CpuJpegEngineTest, DecodesPlanesToTheirPlaces) {
  const MadeJpeg made = {.width = 21,
                         .height = 19,
                         .sampling = ChromaSampling::kGrey,
                         .picture = MadeJpeg::Picture::kStripes,
                         .tables = MadeJpeg::Tables::kOnes};
  const std::string bytes = MakeJpeg(made);
  const PlaneForm form = {21, 19, ChromaSampling::kGrey};
  const PlaneLayout layout = LayOutPlanes(form);
  constexpr uint8_t kUntouched = 77;
  std::vector<uint8_t> planes(layout.bytes + 64, kUntouched);
  CpuJpegEngine engine;
  const EncodedJpeg image = {bytes, form, planes.data()};
  ASSERT_TRUE(engine.Decode({&image, 1}).ok());
  for (uint32_t y = 0; y < 19; ++y) {
    for (uint32_t x = 0; x < 21; ++x) {
      EXPECT_NEAR(planes[y * layout.pitch[0] + x], x % 2 == 0 ? 255 : 0, 2);
    }
  }
  for (uint64_t i = layout.bytes; i < planes.size(); ++i) {
    EXPECT_EQ(planes[i], kUntouched) << i;
  }
  EXPECT_EQ(engine.counts().by_host, 1u);
  EXPECT_EQ(engine.counts().by_hardware, 0u);
  EXPECT_EQ(engine.counts().bytes, bytes.size());
}

TEST(CpuJpegEngineTest, NamesTheImageThatItCannotDecode) {
  const std::string good = MakeJpeg({.width = 40, .height = 40});
  const std::string cut = good.substr(0, good.size() / 2);
  const PlaneForm form = {40, 40, ChromaSampling::k420};
  std::vector<uint8_t> planes(LayOutPlanes(form).bytes);
  const auto decode = [&](const std::string& second, const PlaneForm& of) {
    const EncodedJpeg images[] = {{good, form, planes.data()},
                                  {second, of, planes.data(), 77}};
    return CpuJpegEngine().Decode(images);
  };
  EXPECT_TRUE(decode(good, form).ok());
  for (const std::string& bad : {cut, std::string("no JPEG"), std::string()}) {
    const absl::Status status = decode(bad, form);
    EXPECT_EQ(status.code(), kInvalid) << status;
    EXPECT_NE(status.message().find("image at position 77"), std::string::npos)
        << status;
  }
  EXPECT_EQ(decode(good, {40, 39, ChromaSampling::k420}).code(), kInvalid);
  EXPECT_EQ(decode(good, {40, 40, ChromaSampling::k444}).code(), kInvalid);
  EXPECT_EQ(decode(good, {40, 40, ChromaSampling::kGrey}).code(), kInvalid);
  EXPECT_EQ(
      decode(MakeJpeg({.width = 40, .height = 40, .progressive = true}), form)
          .code(),
      kInvalid);
}

TEST(CpuJpegEngineTest, DecodesAfterADamagedImage) {
  const std::string good = MakeJpeg({.width = 24, .height = 24, .seed = 5});
  const PlaneForm form = {24, 24, ChromaSampling::k420};
  const auto decode = [&](CpuJpegEngine* engine, absl::string_view bytes) {
    std::vector<uint8_t> planes(LayOutPlanes(form).bytes);
    const absl::Status status = engine->DecodeOne({bytes, form, planes.data()});
    return status.ok() ? planes : std::vector<uint8_t>();
  };
  CpuJpegEngine fresh;
  CpuJpegEngine used;
  EXPECT_TRUE(decode(&used, absl::string_view(good).substr(0, 300)).empty());
  const std::vector<uint8_t> want = decode(&fresh, good);
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(decode(&used, good), want);
}

}  // namespace
}  // namespace ballast
