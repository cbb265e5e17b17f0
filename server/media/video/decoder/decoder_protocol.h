#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_DECODER_PROTOCOL_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_DECODER_PROTOCOL_H_

#include <cstdint>

// The requests to the program that runs FFmpeg's libraries (decoder_main.cc),
// and its answers, as frames of common/helper_program.h: parsers of untrusted
// bytes, kept out of the server, which does not link them
// (docs/decisions/0041).
//
//   kFacts   Request, with the descriptor of the file -> kOk: FactsHead, the
//            container's and codec's names, the reasons for a scan, FactsFrame
//            for each frame
//   kDecode  Request, with the descriptors of the file and of the shared
//   memory;
//            `frames` numbers of frames (uint32_t, ascending) -> for each
//            frame, in any order, kOk and its place in the request (uint32_t):
//            its pixels are in the next slot, in rows of `stride` bytes, and
//            the server sends kTaken once it has read them
//
// An answer other than kOk holds a reason and ends the request. Slots are used
// in turn; one is written again only after kTaken for the frame that was in it.
namespace ballast::video_decoder {

enum Task : uint32_t { kFacts, kDecode, kTaken };

struct Request {
  uint32_t frames;
  // Processor time that the request may take; the process is ended above it.
  uint32_t cpu_seconds;
  // The bytes of the video in the file.
  uint64_t offset;
  uint64_t bytes;
  // kDecode: the slots in the shared memory, one after another from its start.
  uint64_t slot_bytes;
  uint32_t slots;
  uint32_t stride;
  // kDecode: what the facts said.
  uint32_t width;
  uint32_t height;
  uint32_t total_frames;
  // kDecode: 1 if the request before was kFacts of the same video, whose list
  // of packets the program then has.
  uint32_t is_listed;
};

enum class Outcome : uint32_t {
  kOk,
  kRefused,   // the same bytes are refused everywhere
  kUnread,    // the file could not be read
  kNoMemory,  // ends the process instead of answering
};

struct FactsHead {
  uint32_t container_bytes;
  uint32_t codec_bytes;
  uint32_t scan_bytes;
  uint32_t frames;
  uint32_t width;  // as stored
  uint32_t height;
  uint32_t rotation;  // degrees clockwise: 0, 90, 180 or 270
  uint32_t is_timed;  // 0 or 1
  // Seconds of a unit of time.
  int32_t unit_numerator;
  int32_t unit_denominator;
  // Frames a second on average, as the container says; 0/1 if it does not.
  int32_t rate_numerator;
  int32_t rate_denominator;
  double seconds;  // as the container says; 0 if it does not
  // The latest end of a shown frame by the packets' times and durations, in
  // units; INT64_MIN if no packet has both.
  int64_t end;
  uint64_t bytes_read;
};

struct FactsFrame {
  int64_t time;
  uint32_t packet;
  uint32_t start;
};

inline constexpr uint32_t kMaxReasonBytes = 4096;
inline constexpr uint32_t kMaxFileNameBytes = 256;
// 19 hours at 30 frames a second.
inline constexpr uint32_t kMaxVideoFrames = uint32_t{1} << 21;
// Pixels of a frame: 8K is half of it.
inline constexpr uint64_t kMaxFramePixels = uint64_t{1} << 26;
// Processor time that one packet may take to decode, and that listing all of
// them may take; the process is ended above it.
inline constexpr int kPacketSeconds = 60;
// The most address space that a process may take.
inline constexpr uint64_t kMaxMemory = uint64_t{4} << 30;
// The libraries refuse a larger allocation: a frame of kMaxFramePixels with 16
// bits a component takes half of it.
inline constexpr uint64_t kLargestAllocation = uint64_t{1} << 30;
// Alignment of rows, and bytes after a frame, in a slot: vector units write
// beyond the end.
inline constexpr uint32_t kRowAlignment = 64;
inline constexpr uint32_t kSlotMargin = 4096;

// Bytes from one row to the next. libswscale converts eight pixels at a time,
// and leaves out the last ones of a row that has no room for eight.
inline constexpr uint64_t RowBytes(uint32_t width) {
  constexpr uint64_t kTogether = 8;
  const uint64_t pixels = (width + kTogether - 1) / kTogether * kTogether;
  return (3 * pixels + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_DECODER_PROTOCOL_H_
