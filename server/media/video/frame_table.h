#ifndef BALLAST_SERVER_MEDIA_VIDEO_FRAME_TABLE_H_
#define BALLAST_SERVER_MEDIA_VIDEO_FRAME_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

// The frames of a video as its packets describe them, without decoding. Pure,
// and of the standard library alone: the decoder program uses it, too.

namespace ballast {

// The time of a packet that has none.
inline constexpr int64_t kNoTime = INT64_MIN;

// Of the times of frames of variable rate.
inline constexpr uint32_t kTimesASecond = 10000;

// A compressed frame, in the order of decoding.
struct VideoPacket {
  int64_t time = kNoTime;  // of presentation, in the stream's unit
  bool is_key = false;     // decoding can begin with it
  bool is_shown = true;    // false: other frames refer to it, nobody sees it
};

// A frame, in the order of presentation.
struct VideoFrame {
  int64_t time = kNoTime;
  uint32_t packet = 0;  // that it is decoded from
  uint32_t start = 0;   // the packet that decoding must begin with

  friend bool operator==(const VideoFrame&, const VideoFrame&) = default;
};

struct FrameTable {
  std::vector<VideoFrame> frames;
  // Whether the packets' times give the order. If not, some packet has none:
  // `frames` are in the order of decoding, every start is 0, and only decoding
  // from the first packet on shows which frame is which.
  bool is_timed = true;
};

// The shown packets by their times; equal times stay in the order of decoding.
// A frame starts at the last key packet before it that is not shown after it:
// frames that are shown before a key packet and decoded after it (leading
// frames of an open group) refer to what precedes it.
FrameTable OrderFrames(const std::vector<VideoPacket>& packets);

// Packets to decode for the wanted frames, given as ascending indices into
// `table.frames`: from each start to the frame, each packet once.
uint64_t PacketsToDecode(const FrameTable& table,
                         const std::vector<uint32_t>& wanted);

// The most packets that decoding one frame of `table` takes.
uint64_t MostPacketsToAFrame(const FrameTable& table);

// Facts of a video that are read without decoding.
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
  // Of a variable video: the time from the first frame to each frame, and to
  // the end of the last, in units of 1 / kTimesASecond s.
  std::vector<uint32_t> times;
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

#endif  // BALLAST_SERVER_MEDIA_VIDEO_FRAME_TABLE_H_
