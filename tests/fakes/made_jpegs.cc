#include "tests/fakes/made_jpegs.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>

// After <cstdio>: jpeglib.h uses FILE without including it.
#include <jpeglib.h>

#include "absl/strings/str_cat.h"
#include "common/random.h"

namespace ballast {
namespace {

using Picture = MadeJpeg::Picture;
using Tables = MadeJpeg::Tables;

uint8_t Value(const MadeJpeg& made, uint32_t x, uint32_t y, int c,
              std::mt19937* random) {
  switch (made.picture) {
    case Picture::kNoise:
      return static_cast<uint8_t>((*random)());
    case Picture::kStripes:
      return x % 2 == 0 ? 255 : 0;
    case Picture::kChecks:
      return (x + y + c) % 2 == 0 ? 255 : 0;
    case Picture::kScene:
      break;
  }
  const uint32_t slope = x * (3 + c) + y * (5 - c);
  const uint32_t edge = (x / 11 + y / 7) % 3 == 0 ? 90 * c : 30;
  return static_cast<uint8_t>(slope / 2 % 160 + edge / 2 + (*random)() % 6);
}

void SetTables(const MadeJpeg& made, std::mt19937* random,
               jpeg_compress_struct* info) {
  jpeg_set_quality(info, made.quality, TRUE);
  if (made.tables == Tables::kOfQuality) return;
  for (int table = 0; table < 2; ++table) {
    unsigned steps[DCTSIZE2];
    for (unsigned& step : steps) {
      step = made.tables == Tables::kOnes      ? 1
             : made.tables == Tables::kLargest ? 255
                                               : 1 + (*random)() % 255;
    }
    jpeg_add_quant_table(info, table, steps, 100, TRUE);
  }
}

const char* GetName(ChromaSampling sampling) {
  switch (sampling) {
    case ChromaSampling::kGrey:
      return "grey";
    case ChromaSampling::k444:
      return "4:4:4";
    case ChromaSampling::k422:
      return "4:2:2";
    case ChromaSampling::k420:
      return "4:2:0";
    case ChromaSampling::kVideo:
      break;  // of no JPEG
  }
  return "unknown";
}

const char* GetName(Picture picture) {
  switch (picture) {
    case Picture::kScene:
      return "scene";
    case Picture::kNoise:
      return "noise";
    case Picture::kStripes:
      return "stripes";
    case Picture::kChecks:
      return "checks";
  }
  return "unknown";
}

}  // namespace

std::string MakeJpeg(const MadeJpeg& made) {
  const bool grey = made.sampling == ChromaSampling::kGrey;
  std::mt19937 random(made.seed);
  jpeg_compress_struct info = {};
  jpeg_error_mgr error;
  info.err = jpeg_std_error(&error);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = made.width;
  info.image_height = made.height;
  info.input_components = grey ? 1 : 3;
  info.in_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  SetTables(made, &random, &info);
  if (!grey) {
    info.comp_info[0].h_samp_factor =
        made.sampling == ChromaSampling::k444 ? 1 : 2;
    info.comp_info[0].v_samp_factor =
        made.sampling == ChromaSampling::k420 ? 2 : 1;
  }
  info.restart_interval = made.restart_interval;
  info.optimize_coding = made.optimised ? TRUE : FALSE;
  if (made.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const int channels = info.input_components;
  std::vector<uint8_t> row(size_t{made.width} * channels);
  for (uint32_t y = 0; y < made.height; ++y) {
    for (uint32_t x = 0; x < made.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        row[size_t{x} * channels + c] = Value(made, x, y, c, &random);
      }
    }
    uint8_t* rows[] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  std::string made_bytes(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return made_bytes;
}

std::string GetName(const MadeJpeg& made) {
  return absl::StrCat(made.width, "x", made.height, " ", GetName(made.sampling),
                      " ", GetName(made.picture), " q", made.quality,
                      " tables ", static_cast<int>(made.tables), " restarts ",
                      made.restart_interval, " seed ", made.seed);
}

std::vector<MadeJpeg> HardJpegs() {
  constexpr ChromaSampling kSamplings[] = {
      ChromaSampling::kGrey, ChromaSampling::k444, ChromaSampling::k422,
      ChromaSampling::k420};
  std::vector<MadeJpeg> jpegs;
  for (const ChromaSampling sampling : kSamplings) {
    const auto add = [&](uint32_t width, uint32_t height) -> MadeJpeg& {
      MadeJpeg made;
      made.width = width;
      made.height = height;
      made.sampling = sampling;
      made.seed = static_cast<uint32_t>(jpegs.size() + 1);
      jpegs.push_back(made);
      return jpegs.back();
    };
    for (uint32_t side = 1; side <= 40; ++side) {
      add(side, 41 - side).picture = Picture::kNoise;
      add(side, side);
    }
    for (const int quality : {1, 10, 50, 90, 100}) {
      add(131, 67).quality = quality;
      MadeJpeg& noise = add(67, 131);
      noise.quality = quality;
      noise.picture = Picture::kNoise;
    }
    for (const Tables tables :
         {Tables::kOnes, Tables::kLargest, Tables::kRandom}) {
      for (const Picture picture :
           {Picture::kNoise, Picture::kStripes, Picture::kChecks}) {
        MadeJpeg& made = add(93, 75);
        made.tables = tables;
        made.picture = picture;
      }
    }
    for (const int interval : {1, 3, 100}) {
      MadeJpeg& made = add(150, 90);
      made.restart_interval = interval;
      made.optimised = true;
    }
    add(1000, 10);
    add(10, 1000);
    add(1000, 999);
  }
  return jpegs;
}

std::string DamagedCopy(const std::string& jpeg, int kind, uint32_t seed) {
  constexpr size_t kHeader = 14;  // of a scan
  std::mt19937 random(seed);
  std::string copy = jpeg;
  const size_t scan = copy.find("\xff\xda") + kHeader;
  const size_t end = copy.size() - 2;
  const auto byte = [&] { return static_cast<char>(random()); };
  const auto within = [&] { return scan + random() % (end - scan); };
  const auto flip = [&](size_t at) {
    copy[at] = static_cast<char>(copy[at] ^ 1 << random() % 8);
  };
  switch (kind) {
    case 0:
      flip(within());
      break;
    case 1:
      for (int i = 0; i < 5; ++i) flip(within());
      break;
    case 2:
      flip(2 + random() % (scan - 2));
      break;
    case 3:
      copy.erase(within(), 1 + random() % 8);
      break;
    case 4:
      copy.insert(within(), std::string(1 + random() % 4, byte()));
      break;
    case 5: {
      const size_t at = within();
      for (size_t i = at; i < std::min(at + 8, end); ++i) copy[i] = 0;
      break;
    }
    case 6:
      std::swap(copy[within()], copy[within()]);
      break;
    case 7:
      copy[within()] = '\xff';
      break;
    case 8:
      copy.insert(within(), {'\xff', static_cast<char>(0xd0 + random() % 8)});
      break;
    case 9:
      copy = copy.substr(0, within()) + "\xff\xd9";
      break;
    case 10:
      copy.insert(end, std::string(1 + random() % 5, byte()));
      break;
    case 11:
      copy.insert(end, "\xff");
      break;
    case 12:
      copy += copy;
      break;
  }
  return copy;
}

PlainPicture::PlainPicture(int width, int height, const Colour& colour)
    : width_(width),
      height_(height),
      pixels_(size_t{3} * static_cast<size_t>(width) *
              static_cast<size_t>(height)) {
  FillBox(0, 0, width, height, colour);
}

PlainPicture PlainPicture::Grained(int width, int height, const Colour& top,
                                   const Colour& bottom, uint64_t seed,
                                   uint64_t stream) {
  PlainPicture picture(width, height, top);
  for (int y = 0; y < height; ++y) {
    Colour row;
    for (int c = 0; c < 3; ++c) {
      row[c] = static_cast<uint8_t>((top[c] * (height - y) + bottom[c] * y) /
                                    height);
    }
    picture.FillBox(0, y, width, 1, row);
  }
  Random random(seed, stream);
  uint64_t bits = 0;
  const size_t count = picture.pixels_.size() / 3;
  for (size_t i = 0; i < count; ++i) {
    // One random number has four bits for each of sixteen pixels.
    if (i % 16 == 0) bits = random.Next();
    const int grain = static_cast<int>(bits & 15) - 8;
    bits >>= 4;
    for (int c = 0; c < 3; ++c) {
      uint8_t& value = picture.pixels_[3 * i + c];
      value = static_cast<uint8_t>(std::clamp(value + grain, 0, 255));
    }
  }
  return picture;
}

void PlainPicture::FillBox(int x, int y, int width, int height,
                           const Colour& colour) {
  for (int row = y; row < y + height; ++row) {
    uint8_t* pixel =
        pixels_.data() + 3 * (static_cast<size_t>(row) * width_ + x);
    for (int i = 0; i < width; ++i, pixel += 3) {
      std::copy(colour.begin(), colour.end(), pixel);
    }
  }
}

std::string PlainPicture::Encode(FileFormat format, int quality) const {
  return EncodeImage(pixels_, width_, height_, format, quality).value();
}

}  // namespace ballast
