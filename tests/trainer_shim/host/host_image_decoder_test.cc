// The oracle is the server's decoder, which tests/server/media/image compares
// with Pillow.
#include "trainer_shim/host/host_image_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/image/engine_jpeg.h"
#include "server/media/image/image.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Decodes with both and compares every byte.
void ExpectServersPixels(HostImageDecoder* decoder, const std::string& bytes,
                         const PlaneForm& form, uint32_t width,
                         uint32_t height) {
  SCOPED_TRACE(::testing::Message() << "to " << width << "x" << height);
  std::vector<uint8_t> want(size_t{width} * height * 3);
  const absl::Status server =
      DecodeResized(bytes, {ImageFormat::kJpeg, form.width, form.height}, width,
                    height, absl::MakeSpan(want));
  ASSERT_TRUE(server.ok()) << server;
  std::vector<uint8_t> got(want.size(), 0x5A);
  const absl::Status status =
      decoder->DecodeResized(bytes, form, width, height, absl::MakeSpan(got));
  ASSERT_TRUE(status.ok()) << status;
  const auto at = std::mismatch(got.begin(), got.end(), want.begin());
  if (at.first == got.end()) return;
  const size_t first = at.first - got.begin();
  FAIL() << "row " << first / (3 * width) << " pixel " << first / 3 % width
         << " channel " << first % 3 << " is " << int{*at.first} << ", wanted "
         << int{*at.second};
}

// Several sizes: the image's own, which shows decoding alone, smaller, larger,
// and one side unchanged.
void ExpectServersPixels(HostImageDecoder* decoder, const std::string& bytes,
                         const PlaneForm& form) {
  const auto part = [](uint32_t side, int of) {
    return std::max<uint32_t>(1, side / of);
  };
  ExpectServersPixels(decoder, bytes, form, form.width, form.height);
  ExpectServersPixels(decoder, bytes, form, part(form.width, 2),
                      part(form.height, 3));
  ExpectServersPixels(decoder, bytes, form, form.width, part(form.height, 2));
  ExpectServersPixels(decoder, bytes, form, part(form.width, 3), form.height);
}

TEST(HostImageDecoderTest, MadeFilesHaveTheServersPixels) {
  HostImageDecoder decoder;
  for (const MadeJpeg& made : HardJpegs()) {
    SCOPED_TRACE(GetName(made));
    const std::string bytes = MakeJpeg(made);
    const PlaneForm form = {made.width, made.height, made.sampling};
    ExpectServersPixels(&decoder, bytes, form);
    ExpectServersPixels(&decoder, bytes, form, made.width + 13,
                        2 * made.height + 1);
    if (HasFatalFailure()) return;
  }
}

TEST(HostImageDecoderTest, TestFilesHaveTheServersPixels) {
  HostImageDecoder decoder;
  int taken = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TestDataPath(""))) {
    const std::string bytes = ReadFile(entry.path());
    const auto judged = JudgeForEngines(bytes);
    if (!judged.ok() || judged->refusal != EngineRefusal::kNone ||
        !HasJpegEnd(bytes)) {
      continue;
    }
    // Files whose damage libjpeg repairs are no exception.
    SCOPED_TRACE(entry.path());
    ExpectServersPixels(&decoder, bytes, judged->form);
    if (HasFatalFailure()) return;
    ++taken;
  }
  EXPECT_GE(taken, 15);
}

TEST(HostImageDecoderTest, TheCorpusHasTheServersPixels) {
  constexpr char kImages[] = "corpus/images";
  const std::optional<std::string> shared = SharedDirWith(kImages);
  if (!shared) GTEST_SKIP() << NotShared(kImages);
  HostImageDecoder decoder;
  int taken = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(*shared + "/" + kImages)) {
    const std::string bytes = ReadFile(entry.path());
    const auto judged = JudgeForEngines(bytes);
    if (!judged.ok() || judged->refusal != EngineRefusal::kNone) continue;
    SCOPED_TRACE(entry.path());
    const PlaneForm& form = judged->form;
    ExpectServersPixels(&decoder, bytes, form, 1148, 868);
    if (HasFatalFailure()) return;
    ++taken;
  }
  EXPECT_GE(taken, 15);
}

// The server's decode and its resize, which tests/server/media/image compares
// with the libraries.
TEST(HostImageDecoderTest, OtherFiltersHaveTheServersPixels) {
  for (const ResampleFilter filter :
       {ResampleFilter::kBox, ResampleFilter::kBilinear,
        ResampleFilter::kBicubic, ResampleFilter::kLanczos}) {
    for (const ResampleLibrary library :
         {ResampleLibrary::kPillow12, ResampleLibrary::kPillow13,
          ResampleLibrary::kTorchvision}) {
      // It has Pillow 12's weights.
      if (library == ResampleLibrary::kPillow13 &&
          filter != ResampleFilter::kBicubic) {
        continue;
      }
      int refused = 0;
      const Resampling resampling = {filter, library};
      HostImageDecoder decoder(resampling);
      for (const MadeJpeg& made : HardJpegs()) {
        SCOPED_TRACE(GetName(made));
        const std::string bytes = MakeJpeg(made);
        const PlaneForm form = {made.width, made.height, made.sampling};
        const auto picture = ImageDecoder().Decode(bytes);
        ASSERT_TRUE(picture.ok()) << picture.status();
        for (const auto& [width, height] :
             {std::pair{made.width / 2 + 1, made.height / 3 + 1},
              {made.width + 13, 2 * made.height + 1},
              {made.width, made.height / 2 + 1},
              {made.width, made.height}}) {
          std::vector<uint8_t> want(size_t{width} * height * 3);
          const absl::Status resized =
              Resize(*picture, resampling, width, height, absl::MakeSpan(want));
          ASSERT_TRUE(resized.ok()) << resized;
          std::vector<uint8_t> got(want.size(), 0x5A);
          const absl::Status status = decoder.DecodeResized(
              bytes, form, width, height, absl::MakeSpan(got));
          if (absl::IsInvalidArgument(status)) {
            // Such images travel as pixels
            // (ModelImages::Share::may_travel_encoded).
            ASSERT_THAT(status.message(), HasSubstr("begins with its height"));
            ++refused;
            continue;
          }
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_EQ(got, want)
              << "filter " << static_cast<int>(filter) << ", library "
              << static_cast<int>(library) << ", to " << width << "x" << height;
        }
      }
      EXPECT_EQ(refused > 0, library == ResampleLibrary::kPillow13) << refused;
    }
  }
}

TEST(HostImageDecoderTest, RefusesSizesThatDoNotFit) {
  const std::string bytes = MakeJpeg({.width = 20, .height = 20});
  const PlaneForm form = {20, 20, ChromaSampling::k420};
  std::vector<uint8_t> out(300);
  HostImageDecoder decoder;
  const auto code = [&](uint32_t width, uint32_t height) {
    return decoder
        .DecodeResized(bytes, form, width, height, absl::MakeSpan(out))
        .code();
  };
  EXPECT_EQ(code(10, 10), absl::StatusCode::kOk);
  EXPECT_EQ(code(10, 11), absl::StatusCode::kInvalidArgument);
  out.clear();
  EXPECT_EQ(code(0, 10), absl::StatusCode::kInvalidArgument);
}

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
