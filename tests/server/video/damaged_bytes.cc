#include "tests/server/video/damaged_bytes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/server/video/made_videos.h"

namespace ballast {

std::vector<std::string> MakeVideosToDamage() {
  return {
      MakeVideo("d.mp4", "64x48", "1",
                "-c:v libx264 -g 10 -bf 2 -pix_fmt yuv420p"),
      MakeVideo("f.mp4", "64x48", "1",
                "-c:v libx264 -g 10 -pix_fmt yuv420p -movflags faststart"),
      MakeVideo("d.mkv", "64x48", "1",
                "-c:v libx265 -x265-params log-level=none:keyint=10 "
                "-pix_fmt yuv420p"),
      MakeVideo("d.webm", "64x48", "1",
                "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 10"),
      MakeVideo("d.avi", "64x48", "1", "-c:v mpeg4 -g 10 -bf 1"),
      MakeVideo("d.ts", "64x48", "1", "-c:v libx264 -g 10 -pix_fmt yuv420p"),
  };
}

std::string Damaged(std::string bytes, std::mt19937_64* random) {
  const auto below = [&](uint64_t most) { return (*random)() % most; };
  switch (below(6)) {
    case 0:
      bytes.resize(below(bytes.size()));
      break;
    case 1:
      for (uint64_t i = 0; i < 1 + below(8); ++i) {
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
      }
      break;
    case 2:  // in the headers
      for (uint64_t i = 0; i < 1 + below(4); ++i) {
        bytes[below(std::min<size_t>(bytes.size(), 1200))] =
            static_cast<char>(below(256));
      }
      break;
    case 3: {
      const size_t at = below(bytes.size());
      std::fill_n(bytes.begin() + at,
                  std::min<size_t>(bytes.size() - at, 1 + below(4096)), '\0');
      break;
    }
    case 4: {
      const size_t at = below(bytes.size());
      bytes.erase(at, 1 + below(300));
      break;
    }
    default:  // at the end, where the index of many files lies
      for (uint64_t i = 0; i < 1 + below(6); ++i) {
        bytes[bytes.size() - 1 - below(std::min<size_t>(bytes.size(), 1500))] =
            static_cast<char>(below(256));
      }
  }
  return bytes;
}

}  // namespace ballast
