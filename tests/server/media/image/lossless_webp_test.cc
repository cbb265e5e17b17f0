// The memory that a lossless WebP takes beyond its pixels: reckoned before it
// is decoded, and never less than libwebp allocates.
#include <webp/decode.h>
#include <webp/encode.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/media/image/image.h"
#include "server/media/image/webp.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/malloc_counter.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

// Bits from the lowest of each byte on.
class BitWriter {
 public:
  void Add(uint32_t value, int count) {
    for (int i = 0; i < count; ++i, ++count_) {
      if (count_ % 8 == 0) bytes_ += '\0';
      if ((value >> i & 1) != 0)
        bytes_.back() |= static_cast<char>(1 << count_ % 8);
    }
  }
  // A code of the one symbol 0, which takes no bits.
  void AddCodeOfZero() { Add(1, 4); }
  // A code of `all` symbols, of which the first 256 take 8 bits each.
  void AddCodeOfBytes(int all) {
    Add(0, 1);
    Add(15, 4);  // lengths of all 19 lengths' codes, in their order:
    for (const int length :
         {17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
      Add(length == 0 || length == 8 ? 1 : 0, 3);
    }
    Add(0, 1);  // as many lengths as symbols
    for (int i = 0; i < all; ++i) Add(i < 256 ? 1 : 0, 1);
  }
  // As such a code writes it: from the highest bit on.
  void AddByte(uint32_t value) {
    for (int i = 7; i >= 0; --i) Add(value >> i & 1, 1);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  int count_ = 0;
};

std::string Little32(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> 8 * i);
  return bytes;
}

struct Made {
  uint32_t width;
  uint32_t height;
  int cache_bits;
  // Of codes; block b of 4x4 pixels, in rows, has number b * stride % groups.
  uint32_t groups;
  uint32_t stride = 1;
};

// The payload of VP8L. All pixels are 0 and take no bits.
std::string Stream(const Made& made) {
  BitWriter bits;
  bits.Add(0x2f, 8);
  bits.Add(made.width - 1, 14);
  bits.Add(made.height - 1, 14);
  bits.Add(0, 4);
  bits.Add(0, 1);  // no transform
  bits.Add(made.cache_bits > 0, 1);
  if (made.cache_bits > 0) bits.Add(made.cache_bits, 4);
  bits.Add(made.groups > 1, 1);
  if (made.groups > 1) {
    bits.Add(0, 3);  // blocks of 4 pixels
    bits.Add(0, 1);  // no cache
    bits.AddCodeOfBytes(280);
    bits.AddCodeOfBytes(256);
    bits.AddCodeOfZero();
    bits.AddCodeOfZero();
    bits.AddCodeOfZero();
    const uint32_t blocks = (made.width + 3) / 4 * ((made.height + 3) / 4);
    for (uint32_t i = 0; i < blocks; ++i) {
      const uint32_t group = i * made.stride % made.groups;
      bits.AddByte(group & 255);
      bits.AddByte(group >> 8);
    }
  }
  for (uint32_t i = 0; i < made.groups * 5; ++i) bits.AddCodeOfZero();
  return bits.bytes();
}

std::string File(std::string stream) {
  const uint32_t size = stream.size();
  if (size % 2 != 0) stream += '\0';
  const std::string chunk = "WEBPVP8L" + Little32(size) + stream;
  return "RIFF" + Little32(chunk.size()) + chunk;
}

// A picture as libwebp's encoder writes it: a smooth one in a part, grain in
// another and few colours in the rest, so that it uses all it has.
std::string Encoded(int width, int height, bool has_palette) {
  std::vector<uint8_t> rgb(size_t(width) * height * 3);
  uint32_t random = 1;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      random = random * 1664525 + 1013904223;
      uint8_t* const pixel = &rgb[(size_t(y) * width + x) * 3];
      for (int c = 0; c < 3; ++c) {
        pixel[c] = has_palette         ? (x / 9 * 7 + y / 5) % 11 * 20
                   : x < width / 3     ? (x * (c + 1) + y * 2) / 4
                   : x < width * 2 / 3 ? random >> (8 + 8 * c)
                                       : (x / 16 + y / 16 + c) % 3 * 90;
      }
    }
  }
  uint8_t* bytes = nullptr;
  const size_t size =
      WebPEncodeLosslessRGB(rgb.data(), width, height, width * 3, &bytes);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

// Lossy, with alpha of so many levels.
std::string LossyWithAlpha(int width, int height, int levels) {
  std::vector<uint8_t> rgba(size_t(width) * height * 4);
  for (size_t i = 0; i < rgba.size(); ++i) {
    const size_t x = i / 4 % width, y = i / 4 / width;
    rgba[i] = static_cast<uint8_t>(
        i % 4 < 3 ? x + y : (x * x / 5 + y * 3) % levels * 255 / levels);
  }
  uint8_t* bytes = nullptr;
  const size_t size =
      WebPEncodeRGBA(rgba.data(), width, height, width * 4, 80, &bytes);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

// Bytes that decoding allocates at its peak, the result included.
uint64_t Peak(const std::string& file) {
  ImageDecoder decoder;
  StartMallocCount();
  const absl::StatusOr<RgbImage> image = decoder.Decode(file);
  const MallocCount count = ReadMallocCount();
  EXPECT_TRUE(image.ok()) << image.status();
  return static_cast<uint64_t>(count.peak);
}

// libwebp's sizes of a group: kTableSize entries of 4 bytes, HTreeGroup, and
// what is rounded up.
constexpr uint64_t kGroup = 2954 * 4 + 576;
constexpr uint64_t kGroupWithCache = 5004 * 4 + 576;

TEST(LosslessWebpTest, CountsGroups) {
  const auto bytes = [](const Made& made) {
    return ReadLosslessTableBytes(Stream(made)).value();
  };
  EXPECT_EQ(bytes({40, 30, 0, 1}), kGroup);
  EXPECT_EQ(bytes({40, 30, 11, 1}), kGroupWithCache);
  // 256x256 blocks, 4 bytes each.
  EXPECT_EQ(bytes({1024, 1024, 0, 900}), (4u << 16) + 900 * kGroup);
  EXPECT_EQ(bytes({1024, 1024, 11, 65536}),
            (4u << 16) + (4u << 16) + 65536 * kGroupWithCache);
  // Groups without a block count as numbers alone: every 16th has one.
  EXPECT_EQ(bytes({1024, 1024, 0, 65536, 16}),
            (4u << 16) + 4 * (65536 - 15) + 4096 * kGroup);
}

TEST(LosslessWebpTest, TakesWhatIsReckoned) {
  if (!CanCountMalloc()) GTEST_SKIP() << "the sanitizer replaces malloc";
  const std::vector<std::string> files = {
      File(Stream({600, 400, 0, 1})),
      File(Stream({600, 400, 11, 1})),
      File(Stream({600, 400, 3, 900})),
      File(Stream({600, 400, 11, 3000})),
      File(Stream({600, 400, 0, 15000, 10})),
      Encoded(700, 500, false),
      Encoded(700, 500, true),
      Encoded(97, 1003, false),
      LossyWithAlpha(700, 500, 3),
      LossyWithAlpha(700, 500, 250),
      LossyWithAlpha(500, 3000, 100),
  };
  for (size_t i = 0; i < files.size(); ++i) {
    const uint64_t needs = ImageDecoder().Needs(files[i]).value();
    const uint64_t peak = Peak(files[i]);
    EXPECT_LE(peak, needs) << i;
    // Not much more: the margin that every image has, and the pixels that a
    // palette saves.
    EXPECT_LE(needs, peak + (3 << 20)) << i;
  }
}

// 300 kB that ask for 1.3 GB.
TEST(LosslessWebpTest, TooManyTablesAreADataFault) {
  const std::string file = File(Stream({1024, 1024, 11, 65536}));
  EXPECT_LT(file.size(), 310'000u);
  const absl::Status status = ImageDecoder().Decode(file).status();
  EXPECT_TRUE(IsDataFault(status)) << status;
  EXPECT_NE(status.message().find("needs 13"), std::string::npos) << status;
  EXPECT_EQ(ImageDecoder().Needs(file).status(), status);
  // The sides alone do not say so.
  EXPECT_TRUE(ReadImageSize(file, {}).ok());
}

// What is damaged here is damaged for libwebp, and the other way round as far
// as codes go.
TEST(LosslessWebpTest, IsAsStrictAsLibwebp) {
  const std::string good = Stream({64, 64, 2, 200});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ReadLosslessTableBytes(good.substr(0, size)).ok() &&
                 size < good.size() - 2 - 200 * 20 / 8)
        << size;
  }
  std::vector<std::string> files = {File(good)};
  for (const bool has_palette : {false, true}) {
    files.push_back(Encoded(90, 70, has_palette));
  }
  uint32_t random = 7;
  int damaged = 0;
  for (const std::string& file : files) {
    for (int i = 0; i < 2000; ++i) {
      random = random * 1664525 + 1013904223;
      std::string other = file;
      const size_t at =
          25 + (random >> 8) % std::min<size_t>(300, file.size() - 25);
      other[at] ^= static_cast<char>(1 << (random >> 4 & 7));
      const absl::StatusOr<uint64_t> bytes =
          ReadLosslessTableBytes(other.substr(20));
      if (bytes.ok()) continue;
      ++damaged;
      EXPECT_TRUE(IsDataFault(bytes.status()));
      int width, height;
      uint8_t* const pixels =
          WebPDecodeRGB(reinterpret_cast<const uint8_t*>(other.data()),
                        other.size(), &width, &height);
      EXPECT_EQ(pixels, nullptr) << at << bytes.status();
      WebPFree(pixels);
    }
  }
  EXPECT_GT(damaged, 1000);
}

}  // namespace
}  // namespace ballast
