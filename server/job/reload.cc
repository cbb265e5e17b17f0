#include "server/job/reload.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/config_keys.h"
#include "server/schedule/step_plan.h"

namespace ballast {
namespace {

// `running` with the keys that a running server can adopt from `wanted`.
v1::Config Adopted(const v1::Config& running, const v1::Config& wanted) {
  v1::Config config = running;
  AdoptReloadable(wanted, &config);
  // A restart is needed to require tokens at all, or to stop requiring them.
  if (running.has_security() && (running.security().tokens_file().empty() ||
                                 wanted.security().tokens_file().empty())) {
    *config.mutable_security() = running.security();
  }
  return config;
}

// Returns whether `key` gives steps of train another mixture, other data or
// another size.
bool IsOfSteps(const std::string& key) {
  return absl::StartsWith(key, "order.mixture_changes") ||
         absl::StartsWith(key, "order.skips") ||
         absl::StartsWith(key, "batch.rampup") ||
         absl::StartsWith(key, "batch.changes");
}

// What a change of a key that the schedule depends on requires.
std::string RestartOfAll(const std::string& key, const v1::Config& running,
                         const v1::Config& wanted) {
  const std::optional<uint64_t> step =
      IsOfSteps(key) ? FirstAlteredStep(running, wanted) : std::nullopt;
  return step.has_value()
             ? absl::StrCat("that would change the schedule from step ", *step,
                            " on, which every server and rank must agree on: "
                            "restart them all, from a checkpoint at step ",
                            *step, " or before")
             : "that would change the schedule, which every server and rank "
               "must agree on: restart them all";
}

}  // namespace

absl::Status CheckReload(const v1::Config& running, const v1::Config& wanted) {
  const std::optional<KeyDifference> difference =
      FirstDifference(Adopted(running, wanted), wanted);
  if (!difference.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(difference->key, " is ", difference->a,
                   " in this server and ", difference->b, " in the file; ",
                   difference->change != v1::Setting::JOB
                       ? std::string("that takes a restart of this server")
                       : RestartOfAll(difference->key, running, wanted)));
}

}  // namespace ballast
