#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "server/media/image/image.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

std::string Big16(uint32_t value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string Big32(uint32_t value) {
  return Big16(value >> 16) + Big16(value & 0xffff);
}

std::string Little(uint32_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string Segment(uint8_t marker, const std::string& payload) {
  return std::string("\xff") + static_cast<char>(marker) +
         Big16(payload.size() + 2) + payload;
}

std::string Jpeg(uint32_t width, uint32_t height, uint8_t start_of_frame = 0xc0,
                 uint8_t bits = 8, uint8_t components = 3) {
  const std::string frame = std::string(1, bits) + Big16(height) +
                            Big16(width) + std::string(1, components);
  return "\xff\xd8" + Segment(0xe0, "JFIF") +
         Segment(start_of_frame, frame + std::string(9, 'x'));
}

std::string Png(uint32_t width, uint32_t height) {
  return "\x89PNG\r\n\x1a\n" + Big32(13) + "IHDR" + Big32(width) +
         Big32(height);
}

std::string Webp(const std::string& chunk, const std::string& payload) {
  return "RIFF" + Little(payload.size() + 12, 4) + "WEBP" + chunk +
         Little(payload.size(), 4) + payload;
}

std::string WebpLossy(uint32_t width, uint32_t height) {
  return Webp("VP8 ", std::string("\0\0\0\x9d\x01\x2a", 6) + Little(width, 2) +
                          Little(height, 2));
}

std::string WebpLossless(uint32_t width, uint32_t height) {
  return Webp("VP8L", "\x2f" + Little((width - 1) | (height - 1) << 14, 4));
}

std::string WebpExtended(uint32_t width, uint32_t height) {
  return Webp("VP8X",
              Little(0, 4) + Little(width - 1, 3) + Little(height - 1, 3));
}

void ExpectHeader(const std::string& bytes, ImageFormat format, uint32_t width,
                  uint32_t height) {
  const absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->format, format);
  EXPECT_EQ(header->width, width);
  EXPECT_EQ(header->height, height);
}

absl::StatusCode GetCode(const std::string& bytes) {
  return ReadImageHeader(bytes).status().code();
}

TEST(ImageHeaderTest, ReadsEachFormat) {
  ExpectHeader(Jpeg(640, 427), ImageFormat::kJpeg, 640, 427);
  ExpectHeader(Png(70000, 3), ImageFormat::kPng, 70000, 3);
  ExpectHeader(WebpLossy(16383, 5), ImageFormat::kWebp, 16383, 5);
  ExpectHeader(WebpLossless(16384, 9), ImageFormat::kWebp, 16384, 9);
  ExpectHeader(WebpLossless(9, 16384), ImageFormat::kWebp, 9, 16384);
  ExpectHeader(WebpExtended(70000, 3), ImageFormat::kWebp, 70000, 3);
}

TEST(ImageHeaderTest, IgnoresTheScalingBitsOfLossyWebp) {
  ExpectHeader(WebpLossy(1u << 14 | 33, 3u << 14 | 44), ImageFormat::kWebp, 33,
               44);
}

TEST(ImageHeaderTest, FindsEveryFrameHeaderOfJpeg) {
  for (int marker = 0xc0; marker <= 0xcf; ++marker) {
    if (marker == 0xc4 || marker == 0xc8 || marker == 0xcc) continue;
    SCOPED_TRACE(marker);
    ExpectHeader(Jpeg(11, 12, marker), ImageFormat::kJpeg, 11, 12);
  }
  // A Huffman table, and a frame header inside a comment, are skipped.
  const std::string start = "\xff\xd8";
  const std::string jpeg = Jpeg(11, 12);
  ExpectHeader(start + Segment(0xc4, "table") + Segment(0xfe, Jpeg(1, 2)) +
                   "junk" + std::string("\xff\0", 2) + "\xff\xff" +
                   jpeg.substr(2),
               ImageFormat::kJpeg, 11, 12);
}

TEST(ImageHeaderTest, EveryCutHeaderNeedsMoreBytes) {
  for (const std::string& bytes :
       {Png(7, 8), WebpLossy(7, 8), WebpLossless(7, 8), WebpExtended(7, 8)}) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(GetCode(bytes.substr(0, size)), absl::StatusCode::kOutOfRange)
          << size << " of " << bytes.size();
    }
  }
  // Everything except the component table of the frame header.
  const std::string jpeg = Jpeg(7, 8);
  for (size_t size = 0; size < jpeg.size() - 9; ++size) {
    EXPECT_EQ(GetCode(jpeg.substr(0, size)), absl::StatusCode::kOutOfRange)
        << size << " of " << jpeg.size();
  }
}

TEST(ImageHeaderTest, RefusesZeroSides) {
  for (const std::string& bytes : {Jpeg(0, 1), Jpeg(1, 0), Png(0, 1), Png(1, 0),
                                   WebpLossy(0, 1), WebpLossy(1, 0)}) {
    EXPECT_EQ(GetCode(bytes), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ImageHeaderTest, RefusesMoreThanTheLimit) {
  ExpectHeader(Png(1 << 14, 1 << 14), ImageFormat::kPng, 1 << 14, 1 << 14);
  for (const std::string& bytes :
       {Jpeg(65535, 65535), Png((1 << 14) + 1, 1 << 14),
        Png(0xffffffff, 0xffffffff), Png(0x80000000, 1),
        WebpExtended(1 << 24, 1 << 24)}) {
    EXPECT_EQ(GetCode(bytes), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ImageHeaderTest, RefusesOtherFiles) {
  std::string first_chunk_is_text = Png(3, 3);
  first_chunk_is_text.replace(12, 4, "tEXt");
  std::string no_key_frame = WebpLossy(3, 3);
  no_key_frame[20] = 1;
  std::string lossless_version = WebpLossless(3, 3);
  lossless_version[24] = '\x20';
  for (const std::string& bytes :
       {std::string("GIF89a and more bytes"), std::string("\0\0\0\0", 4),
        std::string("RIFFxxxxWAVEfmt and so on"), first_chunk_is_text,
        no_key_frame, lossless_version, Webp("ALPH", std::string(20, 'x')),
        Jpeg(3, 3, 0xc0, 12), Jpeg(3, 3, 0xc0, 8, 2),
        // A scan without a frame, a reserved marker, a length smaller than the
        // length field.
        "\xff\xd8" + Segment(0xda, "12345678"),
        "\xff\xd8" + Segment(0x02, "12345678"),
        std::string("\xff\xd8\xff\xe0\0\x01 and more", 15)}) {
    EXPECT_EQ(GetCode(bytes), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ImageHeaderTest, NamesWhatStandsInPlaceOfAnImage) {
  const auto kind = [](std::string bytes) {
    const absl::Status status = ReadImageHeader(bytes).status();
    EXPECT_TRUE(IsDataFault(status)) << status;
    return GetBadKind(status);
  };
  const std::string rest(16, '\0');
  EXPECT_EQ(kind("GIF89a" + rest), "image is GIF");
  EXPECT_EQ(kind("BM" + rest), "image is BMP");
  EXPECT_EQ(kind(std::string("II*\0", 4) + rest), "image is TIFF");
  EXPECT_EQ(kind(std::string("MM\0*", 4) + rest), "image is TIFF");
  EXPECT_EQ(kind(std::string("\0\0\0\x1c", 4) + "ftypavif" + rest),
            "image is AVIF");
  EXPECT_EQ(kind(std::string("\0\0\0\x18", 4) + "ftypheic" + rest),
            "image is HEIC");
  EXPECT_EQ(kind("version https://git-lfs.github.com/spec/v1\noid"),
            "image is a pointer of git LFS");
  EXPECT_EQ(kind("<!DOCTYPE html><html>"), "image is a page of HTML");
  EXPECT_EQ(kind("plain text and no image"), "");
}

// A scan header of `components`.
std::string Scan(int components) {
  std::string body(1, static_cast<char>(components));
  for (int i = 0; i < components; ++i) {
    body += std::string{static_cast<char>(i + 1), 0};
  }
  return Segment(0xda, body + std::string("\0\x3f\0", 3));
}

// A JPEG of three components with these sampling factors (x << 4 | y).
std::string JpegOfFactors(uint32_t width, uint32_t height, int marker,
                          const std::array<int, 3>& factors) {
  std::string frame = {8,
                       static_cast<char>(height >> 8),
                       static_cast<char>(height),
                       static_cast<char>(width >> 8),
                       static_cast<char>(width),
                       3};
  for (int i = 0; i < 3; ++i) {
    frame +=
        std::string{static_cast<char>(i + 1), static_cast<char>(factors[i]), 0};
  }
  return "\xff\xd8" + Segment(marker, frame);
}

uint64_t DecoderBytes(const std::string& bytes) {
  return ReadDecoderBytes(bytes, ReadImageHeader(bytes).value()).value();
}

TEST(DecoderBytesTest, CountCoefficientsWhereAllAreKept) {
  const std::array<int, 3> smooth = {0x22, 0x11, 0x11};
  const std::string baseline = JpegOfFactors(1000, 100, 0xc0, smooth) + Scan(3);
  // Units of 16x16 pixels: 63 x 7, of 6 blocks; and a pointer for each row of
  // blocks, of which a unit has 2 + 1 + 1.
  const uint64_t coefficients = 63 * 7 * 6 * 128 + 7 * 4 * 8;
  const uint64_t rows = DecoderBytes(baseline);
  EXPECT_LT(rows, 2u << 20);
  EXPECT_EQ(DecoderBytes(JpegOfFactors(1000, 100, 0xc2, smooth)),
            rows + coefficients);
  // One component a scan.
  EXPECT_EQ(DecoderBytes(JpegOfFactors(1000, 100, 0xc0, smooth) + Scan(1)),
            rows + coefficients);
  // Cut in the scan's header, and in the frame's.
  for (const size_t size : {baseline.size() - 10, size_t{17}}) {
    EXPECT_EQ(ReadDecoderBytes(baseline.substr(0, size),
                               ReadImageHeader(baseline).value())
                  .status()
                  .code(),
              absl::StatusCode::kOutOfRange);
  }
}

TEST(ImageHeaderTest, TheEndShowsWhetherAnImageIsWhole) {
  const std::string png =
      Png(4, 4) + std::string(9, 'x') + Big32(0) + "IEND" + Big32(0xAE426082);
  const std::string jpeg = Jpeg(4, 4) + "xxxxxxxxxxxx\xff\xd9";
  const std::string webp = WebpExtended(4, 4);
  const auto has_end = [](const std::string& bytes, uint64_t size) {
    return HasImageEnd(
        bytes, bytes.substr(bytes.size() - kImageEndBytes, kImageEndBytes),
        size);
  };
  for (const std::string& whole : {png, jpeg, webp}) {
    EXPECT_TRUE(has_end(whole, whole.size()));
    EXPECT_FALSE(has_end(whole.substr(0, whole.size() - 1), whole.size() - 1));
  }
  EXPECT_FALSE(has_end(png + 'x', png.size() + 1));
  EXPECT_FALSE(has_end(jpeg + 'x', jpeg.size() + 1));
  // A length in the header leaves no doubt.
  EXPECT_TRUE(has_end(webp + 'x', webp.size() + 1));
  EXPECT_TRUE(has_end("no image at all", 15));
}

TEST(DecoderBytesTest, RefuseFactorsThatNoJpegHas) {
  for (const int factors : {0x01, 0x10, 0x51, 0x15}) {
    const std::string bytes =
        JpegOfFactors(64, 64, 0xc2, {factors, 0x11, 0x11});
    EXPECT_TRUE(IsDataFault(
        ReadDecoderBytes(bytes, ReadImageHeader(bytes).value()).status()))
        << factors;
  }
}

TEST(DecoderBytesTest, CountThePixelsOfInterlacedPngAndOfWebp) {
  std::string png = Png(4096, 1024);
  png.resize(33, '\0');
  const uint64_t rows = DecoderBytes(png);
  EXPECT_LT(rows, 4u << 20);
  png[28] = 1;
  EXPECT_EQ(DecoderBytes(png), rows + uint64_t{3} * 4096 * 1024);
  EXPECT_GE(DecoderBytes(WebpLossless(4096, 1024)), 7u * 4096 * 1024);
}

}  // namespace
}  // namespace ballast
