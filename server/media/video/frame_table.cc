#include "server/media/video/frame_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ballast {

namespace {

// Key packets that are looked back at for the start of a frame. In sound files
// it is the last or the one before.
constexpr size_t kMaxLookBack = 32;

}  // namespace

FrameTable OrderFrames(const std::vector<VideoPacket>& packets) {
  FrameTable table;
  for (const VideoPacket& packet : packets) {
    table.is_timed &= !packet.is_shown || packet.time != kNoTime;
  }
  std::vector<uint32_t> keys;
  for (size_t i = 0; i < packets.size(); ++i) {
    const VideoPacket& packet = packets[i];
    const auto number = static_cast<uint32_t>(i);
    if (packet.is_key) keys.push_back(number);
    if (!packet.is_shown) continue;
    VideoFrame frame = {packet.time, number, 0};
    const size_t last = keys.size();
    for (size_t back = 1; back <= std::min(last, kMaxLookBack); ++back) {
      const uint32_t key = keys[last - back];
      if (packets[key].time <= packet.time) {
        frame.start = key;
        break;
      }
    }
    if (!table.is_timed) frame = {kNoTime, number, 0};
    table.frames.push_back(frame);
  }
  if (table.is_timed) {
    std::stable_sort(table.frames.begin(), table.frames.end(),
                     [](const VideoFrame& a, const VideoFrame& b) {
                       return a.time < b.time;
                     });
  }
  return table;
}

uint64_t PacketsToDecode(const FrameTable& table,
                         const std::vector<uint32_t>& wanted) {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // start, packet
  for (const uint32_t i : wanted) {
    ranges.emplace_back(table.frames[i].start, table.frames[i].packet);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t count = 0;
  uint64_t next = 0;  // packet not yet counted
  for (const auto& [start, packet] : ranges) {
    const uint64_t from = std::max<uint64_t>(start, next);
    if (packet < from) continue;
    count += packet + uint64_t{1} - from;
    next = packet + uint64_t{1};
  }
  return count;
}

uint64_t MostPacketsToAFrame(const FrameTable& table) {
  uint64_t most = 0;
  for (const VideoFrame& frame : table.frames) {
    most = std::max(most, frame.packet + uint64_t{1} - frame.start);
  }
  return most;
}

}  // namespace ballast
