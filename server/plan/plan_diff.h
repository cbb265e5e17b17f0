#ifndef BALLAST_SERVER_PLAN_PLAN_DIFF_H_
#define BALLAST_SERVER_PLAN_PLAN_DIFF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/schedule.pb.h"

namespace ballast {

// A setting or a source in which the schedules of two jobs differ.
struct PlanDifference {
  // The first step that it alters; of layout always 0.
  uint64_t from_step = 0;
  // Whether it alters which samples the steps of train have, or their content;
  // else who reads and trains on them, or another split.
  bool is_data = false;
  std::string key;  // of Fingerprint.entries, without the step
  std::optional<std::string> old_value;  // nullopt: absent
  std::optional<std::string> new_value;
};

// Compares the fingerprints of two jobs, of train. Data come first, in the
// order of steps, then by key. Pure.
std::vector<PlanDifference> ComparePlans(const v1::Fingerprint& a,
                                         const v1::Fingerprint& b);

}  // namespace ballast

#endif  // BALLAST_SERVER_PLAN_PLAN_DIFF_H_
