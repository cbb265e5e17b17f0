#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_DECODER_PROCESS_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_DECODER_PROCESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/helper_process.h"
#include "common/small_file.h"
#include "server/media/video/decoder/decoder_protocol.h"
#include "server/media/video/frame_table.h"

namespace ballast {

// Reads the decoder's answer to a request for facts (decoder_protocol.h). The
// process has read untrusted bytes, so nothing in the answer is trusted.
// Errors: INVALID_ARGUMENT (an answer that contradicts itself, a size or number
// of frames beyond the protocol's bounds).
absl::StatusOr<VideoFacts> ParseFacts(absl::string_view answer);

// A video in a file: `bytes` bytes from `offset` on. The descriptor is not
// owned.
struct VideoBytes {
  int fd = -1;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A decoded frame: 8-bit RGB, rows from the top, as stored (not rotated).
struct DecodedFrame {
  const uint8_t* rows;
  uint32_t stride;  // bytes from row to row
};

// A process of FFmpeg's libraries (decoder_main.cc), asked by one thread at a
// time. It ends with this object or the server, however that ends; the next
// call then starts another. Calls block. Thread-compatible.
class DecoderProcess {
 public:
  struct Options {
    // As HelperProcess::Options. Reading the file is no work: longer than
    // storage may be slow.
    absl::Duration patience = absl::Seconds(120);
    // Frames that may be decoded ahead of `take`.
    uint32_t slots = 3;
    // Counts starts and ends; not owned, may be null.
    HelperCounters* counters = nullptr;
  };

  explicit DecoderProcess(const Options& options);
  ~DecoderProcess();
  DecoderProcess(const DecoderProcess&) = delete;
  DecoderProcess& operator=(const DecoderProcess&) = delete;

  // Reads the facts of a video. Errors: a data fault (no video, damage, a codec
  // or container that is not read, too much work or memory; or the video is at
  // fault for the end of a process, as HelperProcess says), UNAVAILABLE (the
  // file cannot be read; the process was killed or stopped, got no memory, or
  // cannot be started), FAILED_PRECONDITION (FFmpeg's libraries cannot be
  // loaded here).
  absl::StatusOr<VideoFacts> ReadFacts(const VideoBytes& video);

  // Decodes the wanted frames, ascending numbers below facts.frames(), and
  // hands each over once, mostly in that order; `place` counts them. The pixels
  // are valid during the call of `take`. Ends with the first error of `take`.
  // `is_listed`: the call before was ReadFacts of the same video, whose packets
  // are then not listed again. Errors: as ReadFacts; a data fault also if
  // the file has other frames than `facts`, or one of them is damaged.
  using Take =
      std::function<absl::Status(uint32_t place, const DecodedFrame& frame)>;
  absl::Status Decode(const VideoBytes& video, const VideoFacts& facts,
                      absl::Span<const uint32_t> wanted, const Take& take,
                      bool is_listed = false);

  // For tests: -1 while there is no process.
  pid_t process() const { return helper_.process(); }
  // Times that a process was started.
  uint64_t starts() const { return helper_.starts(); }

 private:
  // Receives an answer's body; otherwise its fault.
  absl::Status Receive(uint64_t most, std::string* body);
  absl::Status EnsureSlots(uint64_t bytes);
  // The error of an answer that cannot be true; ends the process.
  absl::Status Contradiction(absl::string_view what);

  const Options options_;
  HelperProcess helper_;
  OwnedFd memory_;
  uint8_t* slots_ = nullptr;
  uint64_t slots_bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_DECODER_PROCESS_H_
