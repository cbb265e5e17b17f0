#ifndef BALLAST_TESTS_FAKES_MADE_JPEGS_H_
#define BALLAST_TESTS_FAKES_MADE_JPEGS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/image/engine_jpeg.h"
#include "server/media/encode.h"

namespace ballast {

// A JPEG to make. Equal values give equal bytes.
struct MadeJpeg {
  enum class Picture {
    kScene,    // slopes, edges and a little noise
    kNoise,    // every value, unrelated to its neighbours
    kStripes,  // black and white columns
    kChecks,   // black and white pixels
  };
  enum class Tables { kOfQuality, kOnes, kLargest, kRandom };

  uint32_t width = 16;
  uint32_t height = 16;
  ChromaSampling sampling = ChromaSampling::k420;
  Picture picture = Picture::kScene;
  int quality = 75;
  Tables tables = Tables::kOfQuality;
  int restart_interval = 0;  // MCUs; 0: no restart markers
  bool optimised = false;    // Huffman tables of its own
  bool progressive = false;
  uint32_t seed = 1;
};
std::string MakeJpeg(const MadeJpeg& made);

// What to say of it in a failure: "17x33 4:2:0 noise q75".
std::string GetName(const MadeJpeg& made);

// Files that try the arithmetic of decoding and upsampling: every sampling with
// sides of 1 to 40, extreme tables and qualities, restart markers, long and
// tall pictures. All of them are for the engines.
std::vector<MadeJpeg> HardJpegs();

// A copy of a JPEG with damage of one kind, 0 to kDamageKinds - 1: flipped
// bits, bytes lost, added, swapped and zeroed, cuts, stray markers, and a
// damaged header.
inline constexpr int kDamageKinds = 13;
std::string DamagedCopy(const std::string& jpeg, int kind, uint32_t seed);

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

#endif  // BALLAST_TESTS_FAKES_MADE_JPEGS_H_
