#ifndef BALLAST_CLIENT_TIMING_REPORTER_H_
#define BALLAST_CLIENT_TIMING_REPORTER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"

namespace ballast {

// Reports a rank's timings to the first of its servers that takes them, and
// keeps to that server. A server that has not answered kTolerated times in a
// row is skipped for 10 s, doubled with each further failure up to 5 minutes: a
// trainer's step waits for reports, and hung servers must not cost it a second
// each time. Thread-safe.
class TimingReporter {
 public:
  static constexpr int kTolerated = 3;

  // `servers`: at least one, in order of preference. Nothing is owned.
  TimingReporter(std::vector<LoaderClient*> servers, Clock* clock)
      : servers_(std::move(servers)),
        clock_(clock),
        failures_(servers_.size()) {}

  // Blocks for at most a second per server. Errors: as LoaderClient::Report;
  // UNAVAILABLE or DEADLINE_EXCEEDED if no server took the timing, which is
  // lost; UNAVAILABLE at once while all servers are skipped.
  absl::Status Report(const v1::StepTiming& timing,
                      const std::string& fingerprint);

 private:
  struct Failures {
    int in_a_row = 0;
    absl::Time not_before = absl::InfinitePast();
  };

  // The `i`th server to ask, unless it is skipped now.
  std::optional<size_t> Choose(size_t i) const;
  // Notes that `server` answered `status`.
  void Note(size_t server, const absl::Status& status);

  const std::vector<LoaderClient*> servers_;
  Clock* const clock_;
  mutable Mutex mutex_;
  std::vector<Failures> failures_ ABSL_GUARDED_BY(mutex_);  // by server
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0;  // the server to ask first
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_TIMING_REPORTER_H_
