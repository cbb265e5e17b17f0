#ifndef BALLAST_SERVER_SERVE_RELAY_FRAME_METER_H_
#define BALLAST_SERVER_SERVE_RELAY_FRAME_METER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ballast {

// Reads the frames of one client's side of an HTTP/2 connection (RFC 9113),
// decides what may go on to gRPC, and how much work it means there. A frame
// other than DATA goes on only once it is whole, a header block only with all
// its CONTINUATION frames: gRPC 1.51 parses an unfinished header again from its
// begin with every piece that arrives, and keeps it without a bound. Values
// alone decide. Thread-compatible.
class FrameMeter {
 public:
  // Most bytes of a header block, with its frames' headers and padding, and of
  // every other frame that is not DATA. gRPC refuses more than 16 KiB of
  // decoded headers.
  static constexpr size_t kMaxHeldBytes = 64 << 10;
  // Most SETTINGS and PING of the client that the server has not answered. Each
  // of many that gRPC 1.51 reads at once costs it as much memory and time as
  // there are. Clients have one or two.
  static constexpr size_t kMaxUnanswered = 64;

  // Takes the bytes that the client has sent next, and appends to `on` what
  // goes on. Returns the work that this means to the server, estimated from the
  // kinds of frames (decision 117). Bytes that do not begin as HTTP/2 go on up
  // to the length of its preface, for gRPC to refuse; later ones are dropped.
  // Errors: INVALID_ARGUMENT (a header block or frame beyond kMaxHeldBytes,
  // another frame within a header block, more than kMaxUnanswered); the
  // connection must be closed.
  absl::StatusOr<absl::Duration> Take(absl::string_view bytes, std::string* on);

  // Takes what the server sends next: it ends calls, too, and answers.
  void Watch(absl::string_view bytes);

  // Whether a whole frame has come.
  bool has_spoken() const { return has_spoken_; }
  // Calls that the client has begun and neither side has ended.
  size_t open_calls() const { return calls_.size(); }

 private:
  // Reads a frame's header at the end of held_.
  absl::Status BeginFrame(absl::Duration* work);

  size_t preface_ = 0;  // bytes of it that have come
  bool is_other_ = false;
  bool has_spoken_ = false;
  // Whole frames of an unfinished header block, and the begin of a frame.
  std::string held_;
  size_t frame_begin_ = 0;   // in held_
  bool has_header_ = false;  // the frame's is read
  uint64_t left_ = 0;        // of the frame's payload
  bool is_data_ = false;     // its payload goes on as it comes
  bool in_block_ = false;    // a header block that has not ended
  bool ends_block_ = true;   // the frame does

  absl::flat_hash_set<uint32_t> calls_;  // streams
  uint32_t last_call_ = 0;
  size_t unanswered_ = 0;
  // Of the server's side.
  std::string watched_;     // the begin of a frame's header
  uint64_t unwatched_ = 0;  // of its payload
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_FRAME_METER_H_
