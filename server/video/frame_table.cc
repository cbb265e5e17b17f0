#include "server/video/frame_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/resample_weights.h"
#include "server/corpus/data_fault.h"
#include "server/image/strip_resampler.h"

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

absl::Status MakeListedFrame(absl::string_view picture, uint32_t width,
                             uint32_t height, const VideoPlan& plan,
                             ImageDecoder* decoder, absl::Span<uint8_t> out) {
  BALLAST_ASSIGN_OR_RETURN(RgbImage image, decoder->Decode(picture));
  if (image.width != width || image.height != height) {
    return DataFaultError(absl::StrCat(image.width, "x", image.height,
                                       " pixels instead of ", width, "x",
                                       height));
  }
  const Resampling& last = decoder->options().resampling;
  if (plan.first_width != 0) {
    Resampling pillow;
    if (last.library != ResampleLibrary::kTorchvision) {
      pillow.library = last.library;
    }
    RgbImage first = {plan.first_width, plan.first_height, {}};
    first.pixels.resize(size_t{first.width} * first.height * 3);
    BALLAST_RETURN_IF_ERROR(Resize(image, pillow, first.width, first.height,
                                   absl::MakeSpan(first.pixels)));
    image = std::move(first);
  }
  return Resize(image, last, plan.width, plan.height, out);
}

uint64_t ListedFrameBytes(uint32_t width, uint32_t height,
                          const VideoPlan& plan, const Resampling& resampling) {
  return uint64_t{plan.first_width} * plan.first_height * 3 +
         ResizeSink::MostBytes(resampling, width, height, plan.width,
                               plan.height) +
         (plan.first_width == 0
              ? 0
              : ResizeSink::MostBytes(Resampling(), width, height,
                                      plan.first_width, plan.first_height));
}

}  // namespace ballast
