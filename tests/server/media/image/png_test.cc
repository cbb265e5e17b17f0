// Image data of PNGs larger than a piece, whole and damaged.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/media/image/image.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

std::string Big32(size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

// A photograph's file in parts, which Build puts together.
class PngTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = PlainPicture::Grained(640, 480, {20, 90, 200}, {220, 200, 120},
                                  /*seed=*/3, /*stream=*/0)
                .Encode(FileFormat::kPng, 90);
    head_ = file_.substr(0, file_.find("IDAT") - 4);
    for (size_t at = head_.size(); file_.substr(at + 4, 4) == "IDAT";) {
      size_t length = 0;
      for (int i = 0; i < 4; ++i) {
        length = length << 8 | static_cast<uint8_t>(file_[at + i]);
      }
      data_ += file_.substr(at + 8, length);
      at += length + 12;
    }
    ASSERT_GT(data_.size(), 200'000u);
  }

  // The file with these payloads of IDAT. Checksums of chunks of image data are
  // compared by neither Pillow nor libpng.
  std::string Build(const std::vector<std::string>& payloads) const {
    std::string file = head_;
    for (const std::string& payload : payloads) {
      file += Big32(payload.size()) + "IDAT" + payload + Big32(0);
    }
    return file + Big32(0) + "IEND" + "\xae\x42\x60\x82";
  }

  void ExpectTheSame(const std::string& file) {
    const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(file);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->pixels, ImageDecoder().Decode(file_)->pixels);
  }

  void ExpectRefused(const std::string& file) {
    EXPECT_TRUE(IsDataFault(ImageDecoder().Decode(file).status()));
  }

  std::string Flipped(size_t at) const {
    std::string data = data_;
    data[at] ^= 0x55;
    return data;
  }

  std::string file_;
  std::string head_;
  std::string data_;  // compressed
};

TEST_F(PngTest, ImageDataMayBeCutIntoAnyChunks) {
  ExpectTheSame(Build({data_}));
  std::vector<std::string> bytes;
  for (const char byte : data_) bytes.emplace_back(1, byte);
  bytes.insert(bytes.begin() + 1, std::string());
  ExpectTheSame(Build(bytes));
}

// Each verdict is Pillow's (12.3) of such a file.
TEST_F(PngTest, IsGoodIfAllRowsAre) {
  const std::string rows = data_.substr(0, data_.size() - 4);
  const std::string other_sum = Flipped(data_.size() - 1);
  ExpectTheSame(Build({rows}));
  ExpectTheSame(Build({rows, other_sum.substr(rows.size())}));
  ExpectTheSame(Build({data_}).substr(0, head_.size() + data_.size() + 8));
  ExpectRefused(Build({other_sum}));
}

TEST_F(PngTest, IsRefusedIfARowIsMissingOrDamaged) {
  ExpectRefused(Build({Flipped(data_.size() / 2)}));
  ExpectRefused(Build({Flipped(data_.size() - 100)}));
  ExpectRefused(Build({Flipped(0)}));
  ExpectRefused(Build({data_.substr(0, data_.size() / 2)}));
  std::string text_between = Build({data_.substr(0, 1000)});
  text_between.resize(text_between.size() - 12);  // without IEND
  text_between += Big32(1) + "tEXt " + Big32(0);
  ExpectRefused(text_between +
                Build({data_.substr(1000)}).substr(head_.size()));
}

}  // namespace
}  // namespace ballast
