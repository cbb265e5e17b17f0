#ifndef BALLAST_SERVER_DATA_GUARDED_SOURCE_H_
#define BALLAST_SERVER_DATA_GUARDED_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/blocking_calls.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/sample/sample_source.h"

namespace ballast {

// Bounds the retries of one sample whose disk fails or hangs.
struct ReadPolicy {
  uint32_t attempts = 3;                       // serve.read_attempts
  absl::Duration timeout = absl::Seconds(30);  // serve.read_timeout, in all
  absl::Duration backoff = absl::Milliseconds(100);  // doubled each time
};

// How long to wait before the next attempt, after `attempts` that took
// `elapsed` and of which the last ended with `status`; nullopt if `status` is
// final. Only UNAVAILABLE (an I/O error, a stale handle) and ABORTED are
// retried. Pure.
std::optional<absl::Duration> RetryReadAfter(const ReadPolicy& policy,
                                             uint32_t attempts,
                                             absl::Duration elapsed,
                                             const absl::Status& status);

// Told of each read of a file that failed and is tried again, and why.
// Thread-safe.
using OnReadAgain =
    std::function<void(const std::string& file, absl::string_view reason)>;

// A source whose Read retries if the disk fails, and gives up if it hangs. The
// caller's thread, which this cannot block, reads bytes in the system's memory;
// threads of `calls` read all others. Returns only data faults that were read
// from the disk, and uses ReadParts::places for what is in memory. Further
// errors, which name file, sample and place: DEADLINE_EXCEEDED (the read has
// not returned within the policy's timeout), RESOURCE_EXHAUSTED (too many reads
// hang). Thread-safe.
//
// A read that hangs keeps its thread and the source until it returns.
std::unique_ptr<SampleSource> GuardSource(
    std::shared_ptr<SampleSource> source,
    std::shared_ptr<const LiveValue<ReadPolicy>> policy,
    std::shared_ptr<BlockingCalls> calls, Clock* clock,
    OnReadAgain on_read_again = nullptr);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_GUARDED_SOURCE_H_
