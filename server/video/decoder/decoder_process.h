#ifndef BALLAST_SERVER_VIDEO_DECODER_DECODER_PROCESS_H_
#define BALLAST_SERVER_VIDEO_DECODER_DECODER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/owned_fd.h"
#include "server/video/decoder/decoder_counters.h"
#include "server/video/decoder/decoder_protocol.h"
#include "server/video/video_facts.h"

namespace ballast {

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

// A process of FFmpeg's libraries (decoder_main.cc), spoken to by one thread at
// a time. It ends with this object or the server, however that ends. After an
// error other than a file's own, or a file that killed it, the next call starts
// another process. Calls block. Thread-compatible.
class DecoderProcess {
 public:
  struct Options {
    // The longest time without a word from the process; then it is killed.
    absl::Duration most_silence = absl::Seconds(300);
    // Frames that may be decoded ahead of `take`.
    uint32_t slots = 3;
    // Counts starts and ends; not owned, may be null.
    DecoderCounters* counters = nullptr;
  };

  explicit DecoderProcess(const Options& options) : options_(options) {}
  ~DecoderProcess();
  DecoderProcess(const DecoderProcess&) = delete;
  DecoderProcess& operator=(const DecoderProcess&) = delete;

  // Reads the facts of a video. Errors: INVALID_ARGUMENT (bad bytes: no video,
  // damage, a codec or container that is not read, too much work or memory; or
  // the process died of them twice), UNAVAILABLE (the file cannot be read, no
  // process can be started, or it was killed from outside), DEADLINE_EXCEEDED
  // (silence), FAILED_PRECONDITION (FFmpeg's libraries cannot be loaded here).
  absl::StatusOr<VideoFacts> ReadFacts(const VideoBytes& video);

  // Decodes the wanted frames, ascending numbers below facts.frames(), and
  // hands each over once, mostly in that order; `place` counts them. The pixels
  // are valid during the call of `take`. Ends with the first error of `take`.
  // `is_listed`: the call before was ReadFacts of the same video, whose packets
  // are then not listed again. Errors: as ReadFacts; INVALID_ARGUMENT also if
  // the file has other frames than `facts`, or one of them is damaged.
  using Take =
      std::function<absl::Status(uint32_t place, const DecodedFrame& frame)>;
  absl::Status Decode(const VideoBytes& video, const VideoFacts& facts,
                      absl::Span<const uint32_t> wanted, const Take& take,
                      bool is_listed = false);

  // For tests: -1 while there is no process.
  pid_t process() const { return process_; }
  // Times that a process was started.
  uint64_t starts() const { return starts_; }

 private:
  absl::Status Ask(const video_decoder::Request& request,
                   const VideoBytes& video, absl::Span<const uint32_t> wanted,
                   const std::function<absl::Status()>& read_answer);
  absl::Status EnsureStarted();
  absl::Status EnsureSlots(uint64_t bytes);
  // Reads exactly `size` bytes. ABORTED: the process has ended.
  absl::Status Read(void* to, size_t size);
  absl::Status ReadFault(const video_decoder::Reply& reply);
  // Why the process ended, after Read's ABORTED.
  absl::Status Ended(bool* is_crash);
  // Ends the process, if there is one, and counts why.
  void Stop(DecoderEnd why);
  void Count(DecoderEnd why);

  const Options options_;
  pid_t process_ = -1;
  uint64_t starts_ = 0;
  OwnedFd control_;
  OwnedFd memory_;
  uint8_t* slots_ = nullptr;
  uint64_t slots_bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_DECODER_DECODER_PROCESS_H_
