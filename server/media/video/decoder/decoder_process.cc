#include "server/media/video/decoder/decoder_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "server/media/video/decoder/decoder_image.h"
#include "server/sample/data_fault.h"

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

// FrameTimes of a video of variable rate. Without durations the last frame
// lasts as long as frames do on average.
absl::StatusOr<std::vector<uint32_t>> GetTimes(const VideoFacts& facts,
                                               const FactsHead& head) {
  const std::vector<VideoFrame>& frames = facts.table.frames;
  const int64_t first = frames.front().time;
  const int64_t last = frames.back().time;
  const auto ticks = [&](long double units) {
    return std::round(units * head.unit_numerator / head.unit_denominator *
                      kTimesASecond);
  };
  // Without overflow: times come from a file.
  const auto since = [first](int64_t time) {
    return static_cast<long double>(time) - static_cast<long double>(first);
  };
  const long double end = head.end > last ? ticks(since(head.end))
                                          : ticks(since(last)) * frames.size() /
                                                (frames.size() - 1);
  if (end > UINT32_MAX) {
    return DataFaultError(
        absl::StrCat("frames of variable rate over more than ",
                     UINT32_MAX / kTimesASecond / 3600, " hours"));
  }
  std::vector<uint32_t> times;
  times.reserve(frames.size() + 1);
  for (const VideoFrame& frame : frames) {
    times.push_back(static_cast<uint32_t>(ticks(since(frame.time))));
  }
  times.push_back(static_cast<uint32_t>(std::round(end)));
  return times;
}

double RateOfTimes(const VideoFacts& facts) {
  const std::vector<VideoFrame>& frames = facts.table.frames;
  if (!facts.table.is_timed || frames.size() < 2) return 0;
  const double seconds = (static_cast<double>(frames.back().time) -
                          static_cast<double>(frames.front().time)) *
                         facts.unit;
  return seconds > 0 ? static_cast<double>(frames.size() - 1) / seconds : 0;
}

using video_decoder::Outcome;
using video_decoder::Request;

constexpr char kName[] = "the video decoder";

constexpr uint64_t kMaxAnswer = sizeof(video_decoder::FactsHead) +
                                3 * video_decoder::kMaxFileNameBytes +
                                uint64_t{video_decoder::kMaxVideoFrames} *
                                    sizeof(video_decoder::FactsFrame);

// The most bytes of an answer in addition to its reason.
constexpr uint64_t kMaxContext = 256;

// Processor time of a request: generous, since it only has to end what would
// never end.
constexpr uint64_t kBaseSeconds = 60;
constexpr uint64_t kBytesASecond = 20'000'000;
constexpr uint64_t kPixelsASecond = 2'000'000;
constexpr uint64_t kMaxSeconds = 4 * 3600;

uint32_t Seconds(uint64_t work, uint64_t a_second) {
  return static_cast<uint32_t>(
      std::min(kMaxSeconds, kBaseSeconds + work / a_second));
}

absl::Status Unavailable(absl::string_view what) {
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat(kName, ": ", what, ": ", strerrordesc_np(error)));
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
  facts.is_variable = facts.unit > 0 && IsVariable(facts.table);
  if (facts.is_variable) {
    BALLAST_ASSIGN_OR_RETURN(facts.times, GetTimes(facts, head));
  }
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

DecoderProcess::DecoderProcess(const Options& options)
    : options_(options),
      helper_({.name = kName,
               .libraries = HelperLibrariesAdvice(
                   "videos cannot be decoded",
                   "libavcodec59, libavformat59, libdav1d6, libswscale6"),
               .input_fault = DataFaultError,
               .patience = options.patience,
               .counters = options.counters},
              [] {
                return StartHelper({.name = "ballast-video-decoder",
                                    .image = kDecoderImage,
                                    .bytes = kDecoderImageBytes});
              }) {}

DecoderProcess::~DecoderProcess() {
  if (slots_ != nullptr) munmap(slots_, slots_bytes_);
}

absl::Status DecoderProcess::EnsureSlots(uint64_t bytes) {
  if (bytes <= slots_bytes_) return absl::OkStatus();
  if (slots_ != nullptr) munmap(slots_, slots_bytes_);
  slots_ = nullptr;
  slots_bytes_ = 0;
  memory_ = OwnedFd(
      memfd_create("ballast-video-frames", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed: the process cannot cut it short under the server's eyes.
  if (memory_.get() < 0 ||
      ftruncate(memory_.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(memory_.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Unavailable("shared memory for frames");
  }
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) return Unavailable("mapping frames");
  slots_ = static_cast<uint8_t*>(mapped);
  slots_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status DecoderProcess::Contradiction(absl::string_view what) {
  helper_.Stop(HelperEnd::kAnswer);
  return DataFaultError(
      absl::StrCat(kName, " ", what, "; is the file damaged?"));
}

absl::Status DecoderProcess::Receive(uint64_t most, std::string* body) {
  uint32_t outcome = 0;
  BALLAST_RETURN_IF_ERROR(helper_.Receive(
      std::max<uint64_t>(most, video_decoder::kMaxReasonBytes + kMaxContext),
      &outcome, body));
  if (outcome == static_cast<uint32_t>(Outcome::kOk)) {
    return body->size() <= most ? absl::OkStatus()
                                : Contradiction("contradicts itself");
  }
  for (char& c : *body) {
    if (c < ' ' || c > '~') c = '?';
  }
  switch (static_cast<Outcome>(outcome)) {
    case Outcome::kUnread:
      return absl::UnavailableError(absl::StrCat("reading the video: ", *body));
    default:
      return DataFaultError(*body);
  }
}

absl::StatusOr<VideoFacts> DecoderProcess::ReadFacts(const VideoBytes& video) {
  Request request = {};
  request.offset = video.offset;
  request.bytes = video.bytes;
  request.cpu_seconds = Seconds(video.bytes, kBytesASecond);
  std::string answer;
  BALLAST_RETURN_IF_ERROR(helper_.Ask([&]() -> absl::Status {
    BALLAST_RETURN_IF_ERROR(
        helper_.Send(video_decoder::kFacts, {GetBytes(request)}, {video.fd}));
    return Receive(kMaxAnswer, &answer);
  }));
  return ParseFacts(answer);
}

absl::Status DecoderProcess::Decode(const VideoBytes& video,
                                    const VideoFacts& facts,
                                    absl::Span<const uint32_t> wanted,
                                    const Take& take, bool is_listed) {
  Request request = {};
  // A process that is started anew has no list, and makes one.
  request.is_listed = is_listed ? 1 : 0;
  request.frames = static_cast<uint32_t>(wanted.size());
  request.offset = video.offset;
  request.bytes = video.bytes;
  request.stride = static_cast<uint32_t>(video_decoder::RowBytes(facts.width));
  request.slot_bytes = AlignUp(
      uint64_t{request.stride} * facts.height + video_decoder::kSlotMargin,
      video_decoder::kSlotMargin);
  request.slots = options_.slots;
  request.width = facts.width;
  request.height = facts.height;
  request.total_frames = facts.frames();
  const uint64_t packets =
      PacketsToDecode(facts.table, {wanted.begin(), wanted.end()});
  request.cpu_seconds = Seconds(
      packets * facts.width * facts.height + video.bytes, kPixelsASecond);
  BALLAST_RETURN_IF_ERROR(EnsureSlots(request.slot_bytes * request.slots));
  const absl::string_view numbers(reinterpret_cast<const char*>(wanted.data()),
                                  wanted.size() * sizeof(uint32_t));
  std::vector<bool> is_taken(wanted.size());
  std::string answer;
  return helper_.Ask([&]() -> absl::Status {
    BALLAST_RETURN_IF_ERROR(helper_.Send(video_decoder::kDecode,
                                         {GetBytes(request), numbers},
                                         {video.fd, memory_.get()}));
    for (size_t i = 0; i < wanted.size(); ++i) {
      uint32_t place = 0;
      BALLAST_RETURN_IF_ERROR(Receive(sizeof(place), &answer));
      answer.resize(sizeof(place));
      std::memcpy(&place, answer.data(), sizeof(place));
      if (place >= wanted.size()) {
        return Contradiction("answered with another frame");
      }
      is_taken[place] = true;
      const absl::Status status = take(
          place,
          {slots_ + i % request.slots * request.slot_bytes, request.stride});
      if (!status.ok()) {
        helper_.Stop(HelperEnd::kAbandoned);  // it would go on
        return status;
      }
      BALLAST_RETURN_IF_ERROR(helper_.Send(video_decoder::kTaken, {}));
    }
    // After a crash the frames come again, so each is taken all the same.
    if (std::find(is_taken.begin(), is_taken.end(), false) != is_taken.end()) {
      return Contradiction("left out a frame");
    }
    return absl::OkStatus();
  });
}

}  // namespace ballast
