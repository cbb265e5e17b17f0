#include "server/serve/relay/frame_meter.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kHeaderBytes = 9;

// Types of frames and a flag: RFC 9113, 6.
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 0x1;
constexpr uint8_t kAck = 0x1;
constexpr uint8_t kEndHeaders = 0x4;

// Work of gRPC 1.51 for a frame (decision 117). HEADERS begin a call, which
// takes 20 to 40 KiB until it is done. After RST_STREAM nobody says when that
// is, so it costs the most. SETTINGS and PING are answered.
absl::Duration WorkOf(uint8_t type) {
  switch (type) {
    case kHeaders:
      return absl::Microseconds(200);
    case kReset:
      return absl::Milliseconds(2);
    case kSettings:
    case kPing:
    case kGoAway:
      return absl::Microseconds(30);
    default:
      return absl::Microseconds(2);
  }
}
// Open calls of a connection that double what another one costs, up to nine
// times as much. Ranks have fewer; a client that reads no answers has ever more.
constexpr size_t kFewCalls = 8;
constexpr size_t kManyCalls = 64;
constexpr absl::Duration kWorkOfKib = absl::Nanoseconds(500);

struct FrameHeader {
  uint64_t length;
  uint8_t type;
  uint8_t flags;
  uint32_t stream;
};

FrameHeader ReadHeader(absl::string_view bytes) {
  const auto byte = [bytes](size_t i) -> uint32_t {
    return static_cast<unsigned char>(bytes[i]);
  };
  return {
      byte(0) << 16 | byte(1) << 8 | byte(2), static_cast<uint8_t>(byte(3)),
      static_cast<uint8_t>(byte(4)),
      (byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8)) & 0x7FFFFFFF};
}

bool IsAnswered(uint8_t type) { return type == kSettings || type == kPing; }

}  // namespace

void FrameMeter::Watch(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t skipped = std::min<uint64_t>(unwatched_, bytes.size());
    bytes.remove_prefix(skipped);
    unwatched_ -= skipped;
    const absl::string_view part =
        bytes.substr(0, kHeaderBytes - watched_.size());
    absl::StrAppend(&watched_, part);
    bytes.remove_prefix(part.size());
    if (watched_.size() < kHeaderBytes) return;
    const FrameHeader frame = ReadHeader(watched_);
    watched_.clear();
    unwatched_ = frame.length;
    const bool ends = (frame.type == kData || frame.type == kHeaders) &&
                      (frame.flags & kEndStream) != 0;
    if (ends || frame.type == kReset) calls_.erase(frame.stream);
    if (IsAnswered(frame.type) && (frame.flags & kAck) != 0 &&
        unanswered_ > 0) {
      --unanswered_;
    }
  }
}

absl::Status FrameMeter::BeginFrame(absl::Duration* work) {
  const auto [length, type, flags, stream] =
      ReadHeader(absl::string_view(held_).substr(frame_begin_));
  if (type == kHeaders && stream > last_call_) {
    last_call_ = stream;
    const size_t open = std::min(calls_.size(), kManyCalls);
    *work += WorkOf(type) * (static_cast<double>(open) / kFewCalls);
    calls_.insert(stream);
  } else if (type == kReset) {
    calls_.erase(stream);
  }
  if (IsAnswered(type) && (flags & kAck) == 0 &&
      ++unanswered_ > kMaxUnanswered) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxUnanswered,
                     " SETTINGS and PING before the server's answers"));
  }
  *work += WorkOf(type);
  if (in_block_ != (type == kContinuation)) {
    return absl::InvalidArgumentError(
        in_block_ ? "another frame within a header block"
                  : "CONTINUATION without a header block");
  }
  has_header_ = true;
  left_ = length;
  is_data_ = type == kData;
  ends_block_ =
      (type != kHeaders && type != kContinuation) || (flags & kEndHeaders) != 0;
  if (!is_data_ && held_.size() + length > kMaxHeldBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header block or frame of more than ", kMaxHeldBytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> FrameMeter::Take(absl::string_view bytes,
                                                std::string* on) {
  absl::Duration work = kWorkOfKib * (static_cast<double>(bytes.size()) / 1024);
  const auto take = [&bytes](uint64_t most) {
    const absl::string_view taken =
        bytes.substr(0, std::min<uint64_t>(most, bytes.size()));
    bytes.remove_prefix(taken.size());
    return taken;
  };
  while (!bytes.empty() && !is_other_) {
    if (preface_ < kPreface.size()) {
      const absl::string_view part = take(kPreface.size() - preface_);
      is_other_ = part != kPreface.substr(preface_, part.size());
      if (is_other_) {
        absl::StrAppend(on, kPreface.substr(0, preface_), part);
      }
      preface_ += part.size();
      if (preface_ == kPreface.size() && !is_other_) {
        absl::StrAppend(on, kPreface);
      }
      continue;
    }
    if (!has_header_) {
      const size_t wanted = frame_begin_ + kHeaderBytes;
      const absl::string_view part = take(wanted - held_.size());
      held_.append(part.data(), part.size());
      if (held_.size() < wanted) break;
      BALLAST_RETURN_IF_ERROR(BeginFrame(&work));
      if (is_data_) {
        on->append(held_);
        held_.clear();
      }
    }
    const absl::string_view part = take(left_);
    left_ -= part.size();
    (is_data_ ? *on : held_).append(part.data(), part.size());
    if (left_ > 0) break;
    has_header_ = false;
    has_spoken_ = true;
    in_block_ = !ends_block_;
    if (in_block_) {
      frame_begin_ = held_.size();
      continue;
    }
    on->append(held_);
    held_.clear();
    frame_begin_ = 0;
  }
  return work;
}

}  // namespace ballast
