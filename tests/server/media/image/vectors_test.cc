// Compares small images of every kind with Pillow's pixels, as written by
// make_vectors.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "proto/image/job_images.h"
#include "proto/image/resample_weights.h"
#include "server/media/image/image.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

class ImageVectorsTest : public ::testing::Test {
 protected:
  ImageVectorsTest() : vectors_(ReadJsonOrFail(TestDataPath("vectors.json"))) {}

  // Resizes `bytes` to each of `expected` and compares.
  static void ExpectResized(ImageDecoder& decoder, const std::string& file,
                            const std::string& bytes, const ImageHeader& size,
                            const nlohmann::json& expected) {
    for (const nlohmann::json& resized : expected) {
      SCOPED_TRACE(::testing::Message() << file << " to " << resized["width"]
                                        << "x" << resized["height"]);
      const uint32_t width = resized["width"];
      const uint32_t height = resized["height"];
      std::vector<uint8_t> pixels(size_t{width} * height * 3);
      const absl::Status status = decoder.DecodeResized(
          bytes, size, width, height, absl::MakeSpan(pixels));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Sha256Hex(pixels), resized["sha256"]);
    }
  }

  const nlohmann::json vectors_;
};

TEST_F(ImageVectorsTest, HeaderAndPixelsMatchPillow) {
  ASSERT_FALSE(vectors_["files"].empty());
  for (const nlohmann::json& expected : vectors_["files"]) {
    SCOPED_TRACE(expected["file"]);
    const std::string bytes = ReadFile(TestDataPath(expected["file"]));
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->width, expected["width"]);
    EXPECT_EQ(header->height, expected["height"]);
    const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, expected["width"]);
    EXPECT_EQ(image->height, expected["height"]);
    EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]);
  }
}

// Hashes by to_rgb of qwen-vl-utils (white_rgba), and by _convert_to_rgb of
// mistral-common, which Idefics 3's alpha_composite equals (white).
TEST_F(ImageVectorsTest, TransparentPixelsMatchTheAuthors) {
  const nlohmann::json vectors =
      ReadJsonOrFail(TestDataPath("alpha_vectors.json"));
  ASSERT_EQ(vectors.size(), 17u);
  for (const auto& [file, wanted] : vectors.items()) {
    const std::string bytes = ReadFile(TestDataPath(file));
    for (const auto& [name, transparency] :
         {std::pair("white", v1::Model::TRANSPARENCY_WHITE),
          std::pair("white_rgba", v1::Model::TRANSPARENCY_WHITE_RGBA)}) {
      SCOPED_TRACE(file + " " + name);
      ImageOptions options;
      options.transparency = transparency;
      const absl::StatusOr<RgbImage> image =
          ImageDecoder(options).Decode(bytes);
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_EQ(Sha256Hex(image->pixels), wanted[name]);
    }
  }
}

TEST_F(ImageVectorsTest, ResizedPixelsMatchPillow) {
  for (const nlohmann::json& expected : vectors_["files"]) {
    const std::string bytes = ReadFile(TestDataPath(expected["file"]));
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    ImageDecoder decoder;
    ExpectResized(decoder, expected["file"], bytes, *header,
                  expected["resized"]);
  }
}

TEST_F(ImageVectorsTest, OrientedPixelsMatchPillow) {
  ImageOptions options;
  options.apply_exif_orientation = true;
  ImageDecoder decoder(options);
  size_t turned = 0;
  for (const nlohmann::json& file : vectors_["files"]) {
    const std::string bytes = ReadFile(TestDataPath(file["file"]));
    const absl::StatusOr<ImageHeader> size = ReadImageSize(bytes, options);
    ASSERT_TRUE(size.ok()) << size.status();
    // A file without an orientation is unchanged.
    const bool has = file.contains("transposed");
    turned += has;
    const nlohmann::json& expected = has ? file["transposed"] : file;
    EXPECT_EQ(size->width, expected["width"]) << file["file"];
    EXPECT_EQ(size->height, expected["height"]) << file["file"];
    const absl::StatusOr<RgbImage> image = decoder.Decode(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]) << file["file"];
    ExpectResized(decoder, file["file"], bytes, *size, expected["resized"]);
  }
  EXPECT_GE(turned, 15u);
}

TEST_F(ImageVectorsTest, JudgesDamagedFilesLikePillow) {
  const nlohmann::json cases = ReadJsonOrFail(TestDataPath("damaged.json"));
  ASSERT_FALSE(cases.empty());
  ImageDecoder decoder;
  for (const nlohmann::json& damaged : cases) {
    SCOPED_TRACE(damaged.dump());
    std::string bytes = ReadFile(TestDataPath(damaged["file"]));
    for (const nlohmann::json& change : damaged["changes"]) {
      bytes[change[0].get<size_t>()] = static_cast<char>(change[1].get<int>());
    }
    const absl::StatusOr<RgbImage> image = decoder.Decode(bytes);
#ifdef __aarch64__
    const char* key =
        damaged.contains("arm_rgb_sha256") ? "arm_rgb_sha256" : "rgb_sha256";
#else
    const char* key = "rgb_sha256";
#endif
    if (damaged[key].is_null()) {
      EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
    } else {
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_EQ(Sha256Hex(image->pixels), damaged[key]);
    }
  }
}

TEST_F(ImageVectorsTest, RefusesWhatPillowRefuses) {
  ASSERT_FALSE(vectors_["refused"].empty());
  for (const std::string file : vectors_["refused"]) {
    EXPECT_EQ(
        ImageDecoder().Decode(ReadFile(TestDataPath(file))).status().code(),
        absl::StatusCode::kInvalidArgument)
        << file;
  }
}

TEST_F(ImageVectorsTest, AcceptsThePrefixesThatPillowAccepts) {
  for (const nlohmann::json& expected : vectors_["files"]) {
    const std::string bytes = ReadFile(TestDataPath(expected["file"]));
    const size_t shortest = expected["shortest_accepted"];
    // For larger files, some of all lengths and those around the border.
    const size_t step = bytes.size() < 6000 ? 1 : 101;
    const auto next = [&](size_t size) {
      const bool near = size + step >= shortest && size < shortest + 2;
      return near ? size + 1 : size + step;
    };
    for (size_t size = 0; size <= bytes.size(); size = next(size)) {
      SCOPED_TRACE(::testing::Message()
                   << expected["file"] << " cut to " << size << " of "
                   << bytes.size() << " bytes; Pillow needs " << shortest);
      // A separate copy, so that reading past its end is detected.
      const std::vector<char> prefix(bytes.begin(), bytes.begin() + size);
      const absl::StatusOr<RgbImage> image =
          ImageDecoder().Decode(absl::string_view(prefix.data(), size));
      if (size < shortest) {
        EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
      } else {
        ASSERT_TRUE(image.ok()) << image.status();
        EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]);
      }
    }
  }
}

// Compares photographs of the shared corpus with Pillow's pixels.

TEST(GoldenImagesTest, DecodeAndResizeMatchPillow) {
  constexpr char kGolden[] = "golden/images.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const nlohmann::json golden = ReadJsonOrFail(*shared + "/" + kGolden);
  ASSERT_FALSE(golden["images"].empty());
  ImageDecoder decoder;
  for (const nlohmann::json& expected : golden["images"]) {
    const std::string name = expected["file"];
    SCOPED_TRACE(name);
    const std::string bytes = ReadFile(*shared + "/corpus/images/" + name);
    const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, expected["width"]);
    EXPECT_EQ(image->height, expected["height"]);
    EXPECT_EQ(Sha256Hex(image->pixels), expected["rgb_sha256"]);

    for (const auto& [profile, resized] : expected["profiles"].items()) {
      SCOPED_TRACE(profile);
      const uint32_t width = resized["resized_w"];
      const uint32_t height = resized["resized_h"];
      std::vector<uint8_t> pixels(size_t{width} * height * 3);
      const absl::Status status =
          Resize(*image, Resampling(), width, height, absl::MakeSpan(pixels));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Sha256Hex(pixels), resized["resized_sha256"]);

      // The same sizes in one pass.
      std::fill(pixels.begin(), pixels.end(), 0);
      const absl::Status fused =
          decoder.DecodeResized(bytes, ReadImageHeader(bytes).value(), width,
                                height, absl::MakeSpan(pixels));
      ASSERT_TRUE(fused.ok()) << fused;
      EXPECT_EQ(Sha256Hex(pixels), resized["resized_sha256"]);
    }
  }
}

// Properties that follow from the filter; vectors_test.cc compares pixels with
// Pillow.

RgbImage Flat(uint32_t width, uint32_t height) {
  RgbImage image{width, height, {}};
  for (uint32_t i = 0; i < width * height; ++i) {
    for (const uint8_t value : {0, 129, 255}) image.pixels.push_back(value);
  }
  return image;
}

TEST(ResizeTest, AFlatImageStaysFlat) {
  for (const auto& [width, height] :
       {std::pair(1u, 1u), std::pair(40u, 3u), std::pair(7u, 90u)}) {
    std::vector<uint8_t> out(width * height * 3);
    ASSERT_TRUE(
        Resize(Flat(13, 11), Resampling(), width, height, absl::MakeSpan(out))
            .ok());
    EXPECT_EQ(out, Flat(width, height).pixels);
  }
}

TEST(ResizeTest, AnUnchangedSizeIsACopy) {
  RgbImage image = Flat(5, 4);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = i * 37;
  std::vector<uint8_t> out(image.pixels.size());
  ASSERT_TRUE(Resize(image, Resampling(), 5, 4, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, image.pixels);
}

TEST(ResizeTest, RefusesSizesThatDoNotFit) {
  std::vector<uint8_t> out(2 * 2 * 3);
  const absl::Span<uint8_t> span = absl::MakeSpan(out);
  const auto code = [&](const RgbImage& source, uint32_t width, uint32_t height,
                        absl::Span<uint8_t> to) {
    return Resize(source, Resampling(), width, height, to).code();
  };
  EXPECT_EQ(code(Flat(3, 3), 2, 2, span), absl::StatusCode::kOk);
  EXPECT_EQ(code(Flat(3, 3), 2, 2, span.first(11)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Flat(3, 3), 0, 2, span.first(0)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Flat(3, 0), 2, 2, span), absl::StatusCode::kInvalidArgument);
  RgbImage short_of_pixels = Flat(3, 3);
  short_of_pixels.pixels.pop_back();
  EXPECT_EQ(code(short_of_pixels, 2, 2, span),
            absl::StatusCode::kInvalidArgument);
}

// Compares resized pictures with Pillow 12, Pillow 13 and torchvision;
// make_resize_vectors.py made the vectors.

const std::map<std::string, ResampleLibrary> kLibraries = {
    {"pillow12", ResampleLibrary::kPillow12},
    {"pillow13", ResampleLibrary::kPillow13},
    {"torchvision", ResampleLibrary::kTorchvision}};
const std::map<std::string, ResampleFilter> kFilters = {
    {"box", ResampleFilter::kBox},
    {"bilinear", ResampleFilter::kBilinear},
    {"bicubic", ResampleFilter::kBicubic},
    {"lanczos", ResampleFilter::kLanczos}};

// As in make_resize_vectors.py.
RgbImage Picture(uint32_t width, uint32_t height) {
  RgbImage image{width, height, {}};
  uint32_t state = width * 65536 + height;
  for (uint32_t i = 0; i < width * height * 3; ++i) {
    state = state * 1664525 + 1013904223;
    image.pixels.push_back(i / 97 % 3 == 0 ? (i / 17 % 2) * 255 : state >> 24);
  }
  return image;
}

TEST(ResizeVectorsTest, EveryFilterHasThePixelsOfEachLibrary) {
  const nlohmann::json vectors =
      ReadJsonOrFail(TestDataPath("resize_vectors.json"));
  for (const auto& [name, library] : kLibraries) {
    ASSERT_TRUE(vectors.contains(name));
    for (const nlohmann::json& vector : vectors[name]["vectors"]) {
      SCOPED_TRACE(name + " " + vector.dump());
      const Resampling resampling = {
          .filter = kFilters.at(vector[0].get<std::string>()),
          .library = library};
      const uint32_t width = vector[3];
      const uint32_t height = vector[4];
      std::vector<uint8_t> out(size_t{width} * height * 3);
      ASSERT_TRUE(Resize(Picture(vector[1], vector[2]), resampling, width,
                         height, absl::MakeSpan(out))
                      .ok());
      EXPECT_EQ(Sha256Hex(out), vector[5].get<std::string>());
    }
  }
}

TEST(ResizeOrderTest, FollowsEachLibrary) {
  using enum ResampleLibrary;
  // Shrinks by 40 and by 20 pixels: not more than twice.
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow13, 90, 60, 70, 20));
  EXPECT_TRUE(IsResizedAlongYFirst(kPillow13, 90, 60, 70, 19));
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow12, 90, 60, 70, 19));
  EXPECT_FALSE(IsResizedAlongYFirst(kTorchvision, 90, 60, 70, 19));
  // A growing width; a height that does not shrink.
  EXPECT_TRUE(IsResizedAlongYFirst(kPillow13, 640, 480, 644, 476));
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow13, 640, 480, 1000, 480));
  // Very tall.
  EXPECT_TRUE(IsResizedAlongYFirst(kPillow12, 3, 410, 2, 409));
  EXPECT_FALSE(IsResizedAlongYFirst(kPillow13, 3, 410, 2, 409));
  EXPECT_FALSE(IsResizedAlongYFirst(kTorchvision, 3, 410, 2, 30));
}

}  // namespace
}  // namespace ballast
