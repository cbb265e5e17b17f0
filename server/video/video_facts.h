#ifndef BALLAST_SERVER_VIDEO_VIDEO_FACTS_H_
#define BALLAST_SERVER_VIDEO_VIDEO_FACTS_H_

#include <cstdint>
#include <string>

#include "server/video/frame_table.h"

namespace ballast {

// What a video file says without a frame being decoded.
struct VideoFacts {
  std::string container;  // libavformat's name
  std::string codec;      // libavcodec's name
  uint32_t width = 0;     // of a frame as stored
  uint32_t height = 0;
  uint32_t rotation = 0;  // clockwise degrees that show it upright, by 90
  // Frames a second on average: the container's figure, or the frames over
  // their time where it has none. Above 0.
  double fps = 0;
  double seconds = 0;        // of the video as the container says; 0: unknown
  double unit = 0;           // seconds of FrameTable's times
  bool is_variable = false;  // frames are not evenly spaced
  // Why more than the headers had to be read; empty if they sufficed.
  std::string scan;
  uint64_t bytes_read = 0;
  FrameTable table;

  uint32_t frames() const { return static_cast<uint32_t>(table.frames.size()); }
  // As shown upright.
  uint32_t shown_width() const { return rotation % 180 ? height : width; }
  uint32_t shown_height() const { return rotation % 180 ? width : height; }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_VIDEO_FACTS_H_
