#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEXED_VIDEO_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEXED_VIDEO_H_

#include <cstdint>

namespace ballast {

// The facts of a video that its plan and its cost follow from, as the index
// stores them. Little-endian.
struct IndexedVideo {
  static constexpr uint32_t kIsVariable = 1;  // frames are not evenly spaced
  static constexpr uint32_t kHasStart = 2;
  static constexpr uint32_t kHasEnd = 4;
  static constexpr uint32_t kIsList = 8;  // pictures, all of them frames

  double fps;  // on average, above 0; a list's: 0
  // Sampled a second, as the sample says; 0: the model's. A list's: taken.
  double sample_fps;
  // The clip, in seconds, where the flags say so; else 0.
  double start;
  double end;
  uint32_t frames;
  uint32_t width;  // in pixels, shown upright
  uint32_t height;
  uint32_t rotation;    // clockwise degrees that show it upright
  uint32_t key_frames;  // frames with which decoding can begin
  uint32_t flags;       // below bit 8; above: media_order.h
  char codec[16];       // libavcodec's name, and zeros; a list's: zeros
};
static_assert(sizeof(IndexedVideo) == 72);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEXED_VIDEO_H_
