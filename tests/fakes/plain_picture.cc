#include "tests/fakes/plain_picture.h"

#include <algorithm>
#include <cstddef>

#include "server/command/draw/random.h"

namespace ballast {

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
