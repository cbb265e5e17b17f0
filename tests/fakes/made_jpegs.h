#ifndef BALLAST_TESTS_FAKES_MADE_JPEGS_H_
#define BALLAST_TESTS_FAKES_MADE_JPEGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/image/engine_jpeg.h"

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

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_MADE_JPEGS_H_
