#include "client/hang_timer.h"

#include "absl/strings/str_cat.h"

namespace ballast {

void HangTimer::Start(absl::Time now) {
  may_send_since_ = now;
  last_byte_ = now;
  bytes_ = 0;
}

absl::Status HangTimer::Check(absl::Time now, const Wait& wait) {
  if (!wait.may_send) {
    Start(now);
    return absl::OkStatus();
  }
  if (wait.bytes != bytes_) {
    bytes_ = wait.bytes;
    last_byte_ = now;
  }
  if (now - last_byte_ >= silent_after_) {
    return absl::DeadlineExceededError(absl::StrCat(
        "sent no byte for ", absl::FormatDuration(now - last_byte_), " (after ",
        bytes_,
        " bytes of the block) though it was granted credit; does it "
        "hang, or its disk?"));
  }
  if (now - may_send_since_ >= slow_after_) {
    return absl::DeadlineExceededError(absl::StrCat(
        "has sent ", bytes_, " bytes of the block and not all of it in ",
        absl::FormatDuration(now - may_send_since_), "; is it overloaded?"));
  }
  return absl::OkStatus();
}

}  // namespace ballast
