#ifndef BALLAST_SERVER_DELIVERY_AHEAD_PLAN_H_
#define BALLAST_SERVER_DELIVERY_AHEAD_PLAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/delivery_rule.h"

namespace ballast {

// A sample that a server will read.
struct AheadSample {
  uint64_t position = 0;
  uint32_t source = 0;
  uint64_t ordinal = 0;

  friend bool operator==(const AheadSample&, const AheadSample&) = default;
};

// The ranks of one module that a server serves, and whose samples they pull.
struct ServedModule {
  std::set<uint32_t> ranks;
  DeliveryRule rule;
};

// The samples of a step that a server reads for `served`, each once, in the
// order in which its blocks need them: by micro-batch, then by position. Pure.
std::vector<AheadSample> SamplesToRead(
    const v1::StepSchedule& schedule,
    const std::map<v1::Module, ServedModule>& served);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_AHEAD_PLAN_H_
