#ifndef BALLAST_TESTS_FAKES_PLAIN_PICTURE_H_
#define BALLAST_TESTS_FAKES_PLAIN_PICTURE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "server/command/draw/encode.h"

namespace ballast {

// An RGB picture whose pixels follow from a formula. Thread-compatible.
class PlainPicture {
 public:
  using Colour = std::array<uint8_t, 3>;

  // Both sides are at least 1.
  PlainPicture(int width, int height, const Colour& colour);

  // A gradient from `top` to `bottom` with a grey grain of -8..7, the same for
  // a seed and a stream.
  static PlainPicture Grained(int width, int height, const Colour& top,
                              const Colour& bottom, uint64_t seed,
                              uint64_t stream);

  // Fills a rectangle inside the picture.
  void FillBox(int x, int y, int width, int height, const Colour& colour);

  // The picture as a file; `quality` as of EncodeImage. Ends the program if the
  // encoder fails.
  std::string Encode(FileFormat format, int quality) const;

 private:
  int width_;
  int height_;
  std::vector<uint8_t> pixels_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_PLAIN_PICTURE_H_
