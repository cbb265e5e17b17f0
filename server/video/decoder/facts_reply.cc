#include "server/video/decoder/facts_reply.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"
#include "server/video/decoder/decoder_protocol.h"

namespace ballast {
namespace {

using video_decoder::FactsFrame;
using video_decoder::FactsHead;

// Frames a second beyond which a rate says nothing.
constexpr double kMaxRate = 1e6;

absl::Status Contradiction(absl::string_view what) {
  return DataFaultError(
      absl::StrCat("the decoder's answer contradicts itself (", what,
                   "); is the file "
                   "damaged?"));
}

std::string TakeText(absl::string_view* rest, uint32_t bytes) {
  std::string text(rest->substr(0, bytes));
  rest->remove_prefix(bytes);
  // Names in a damaged file may hold anything.
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

absl::Status ReadFrames(absl::string_view bytes, const FactsHead& head,
                        FrameTable* table) {
  table->is_timed = head.is_timed == 1;
  table->frames.reserve(head.frames);
  int64_t last = INT64_MIN;
  for (size_t at = 0; at < bytes.size(); at += sizeof(FactsFrame)) {
    FactsFrame frame;
    std::memcpy(&frame, bytes.data() + at, sizeof(frame));
    if (frame.start > frame.packet ||
        frame.packet >= video_decoder::kMaxVideoFrames) {
      return Contradiction("a frame before its start");
    }
    if (table->is_timed && (frame.time < last || frame.time == kNoTime)) {
      return Contradiction("frames not in order of time");
    }
    last = frame.time;
    table->frames.push_back({frame.time, frame.packet, frame.start});
  }
  return absl::OkStatus();
}

// More than half a unit, and a hundredth of the usual step, from even steps.
bool IsVariable(const FrameTable& table) {
  const std::vector<VideoFrame>& frames = table.frames;
  if (!table.is_timed || frames.size() < 3) return false;
  const double first = static_cast<double>(frames.front().time);
  const double step = (static_cast<double>(frames.back().time) - first) /
                      static_cast<double>(frames.size() - 1);
  const double most = 1.01 + step / 100;
  for (size_t i = 0; i < frames.size(); ++i) {
    const double even = first + step * static_cast<double>(i);
    if (std::abs(static_cast<double>(frames[i].time) - even) > most) {
      return true;
    }
  }
  return false;
}

double RateOfTimes(const VideoFacts& facts) {
  const std::vector<VideoFrame>& frames = facts.table.frames;
  if (!facts.table.is_timed || frames.size() < 2) return 0;
  const double seconds = (static_cast<double>(frames.back().time) -
                          static_cast<double>(frames.front().time)) *
                         facts.unit;
  return seconds > 0 ? static_cast<double>(frames.size() - 1) / seconds : 0;
}

}  // namespace

absl::StatusOr<VideoFacts> ParseFacts(absl::string_view answer) {
  FactsHead head;
  if (answer.size() < sizeof(head)) return Contradiction("no head");
  std::memcpy(&head, answer.data(), sizeof(head));
  absl::string_view rest = answer.substr(sizeof(head));
  for (const uint32_t bytes :
       {head.container_bytes, head.codec_bytes, head.scan_bytes}) {
    if (bytes > video_decoder::kMaxFileNameBytes)
      return Contradiction("a name");
  }
  const uint64_t names =
      uint64_t{head.container_bytes} + head.codec_bytes + head.scan_bytes;
  if (head.frames == 0 || head.frames > video_decoder::kMaxVideoFrames ||
      rest.size() != names + uint64_t{head.frames} * sizeof(FactsFrame)) {
    return Contradiction("its length");
  }
  if (head.width == 0 || head.height == 0 ||
      uint64_t{head.width} * head.height > video_decoder::kMaxFramePixels) {
    return DataFaultError(absl::StrCat(
        "frames of ", head.width, "x", head.height, " pixels; wanted 1 to ",
        video_decoder::kMaxFramePixels, " pixels"));
  }
  if (head.rotation % 90 != 0 || head.rotation >= 360) {
    return Contradiction("a rotation");
  }
  VideoFacts facts;
  facts.container = TakeText(&rest, head.container_bytes);
  facts.codec = TakeText(&rest, head.codec_bytes);
  facts.scan = TakeText(&rest, head.scan_bytes);
  facts.width = head.width;
  facts.height = head.height;
  facts.rotation = head.rotation;
  facts.bytes_read = head.bytes_read;
  if (head.unit_numerator > 0 && head.unit_denominator > 0) {
    facts.unit =
        static_cast<double>(head.unit_numerator) / head.unit_denominator;
  }
  if (std::isfinite(head.seconds) && head.seconds > 0) {
    facts.seconds = head.seconds;
  }
  const absl::Status status = ReadFrames(rest, head, &facts.table);
  if (!status.ok()) return status;
  facts.is_variable = IsVariable(facts.table);
  if (head.rate_numerator > 0 && head.rate_denominator > 0) {
    facts.fps =
        static_cast<double>(head.rate_numerator) / head.rate_denominator;
  } else {
    facts.fps = RateOfTimes(facts);
  }
  if (!(facts.fps > 0) || facts.fps > kMaxRate) {
    return DataFaultError(
        absl::StrCat("no rate of frames: neither the container nor the times "
                     "of its ",
                     head.frames, " frames give one"));
  }
  return facts;
}

}  // namespace ballast
