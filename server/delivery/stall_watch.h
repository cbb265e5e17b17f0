#ifndef BALLAST_SERVER_DELIVERY_STALL_WATCH_H_
#define BALLAST_SERVER_DELIVERY_STALL_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/live_value.h"
#include "common/ticker.h"
#include "server/delivery/active_samples.h"

namespace ballast {

// The samples whose stage has lasted `after` or longer, oldest stage first.
// Pure.
std::vector<ActiveSample> Stalled(absl::Span<const ActiveSample> work,
                                  absl::Time now, absl::Duration after);

// Reports each stall once. Pure; thread-compatible.
class StallReports {
 public:
  // The entries of `stalled` that were not in the previous call.
  std::vector<ActiveSample> New(absl::Span<const ActiveSample> stalled);

 private:
  std::set<uint64_t> reported_;
};

// Checks the active samples periodically, in its own thread, and logs each
// stage that lasts too long once, with file and place. Thread-safe.
class StallWatch {
 public:
  // Names the sample: "docs:17 (docs-000.tar at byte 512)". Not called for a
  // schedule.
  using Describe = std::function<std::string(const ActiveSample& work)>;

  // `samples` and `clock` are not owned and outlive this. Errors:
  // RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<StallWatch>> Start(
      const ActiveSamples* samples, absl::Duration after, Describe describe,
      Clock* clock);

  // Changes `after` from now on. The thread notices when its present sleep, a
  // quarter of the old value, ends.
  void SetAfter(absl::Duration after) { after_.Set(after); }

  // The samples that are stalled now.
  std::vector<ActiveSample> Stalls() const;

 private:
  StallWatch(const ActiveSamples* samples, absl::Duration after,
             Describe describe, Clock* clock);
  void Look();

  const ActiveSamples* const samples_;
  LiveValue<absl::Duration> after_;
  const Describe describe_;
  Clock* const clock_;
  StallReports reports_;            // used only by the ticker's thread
  std::unique_ptr<Ticker> ticker_;  // last: its thread uses all the others
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_STALL_WATCH_H_
