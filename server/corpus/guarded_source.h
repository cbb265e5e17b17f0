#ifndef BALLAST_SERVER_CORPUS_GUARDED_SOURCE_H_
#define BALLAST_SERVER_CORPUS_GUARDED_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/blocking_calls.h"
#include "common/clock.h"
#include "common/live_value.h"
#include "server/corpus/sample_source.h"

namespace ballast {

// How long a disk that fails or hangs is borne with, for one sample.
struct ReadPolicy {
  uint32_t attempts = 3;                       // serve.read_attempts
  absl::Duration timeout = absl::Seconds(30);  // serve.read_timeout, of all
  absl::Duration backoff = absl::Milliseconds(100);  // doubled each time
};

// What to wait before the next attempt, after `attempts` that took `elapsed`
// and of which the last ended with `status`; nothing where it stands. Only what
// may pass is tried again: UNAVAILABLE (an I/O error, a stale handle) and
// ABORTED. Pure.
std::optional<absl::Duration> RetryReadAfter(const ReadPolicy& policy,
                                             uint32_t attempts,
                                             absl::Duration elapsed,
                                             const absl::Status& status);

// A source whose Read tries again where the disk fails, and gives up where it
// hangs. What the system has in memory is read by the caller's thread, which
// nothing can keep; the rest by threads of `calls`. Beyond the errors of the
// source itself: DEADLINE_EXCEEDED (the read has not come back within the
// policy's timeout) and RESOURCE_EXHAUSTED (too many reads hang), which name
// file, sample and place. Thread-safe.
//
// A read that hangs keeps its thread and the source until it comes back.
std::unique_ptr<SampleSource> GuardSource(
    std::shared_ptr<SampleSource> source,
    std::shared_ptr<const LiveValue<ReadPolicy>> policy,
    std::shared_ptr<BlockingCalls> calls, Clock* clock);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_GUARDED_SOURCE_H_
