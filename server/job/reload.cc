#include "server/job/reload.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/config_difference.h"
#include "server/schedule/step_plan.h"

namespace ballast {
namespace {

// `running` with the keys that a running server can adopt from `wanted`.
v1::Config Adopted(const v1::Config& running, const v1::Config& wanted) {
  v1::Config config = running;
  v1::Serve& serve = *config.mutable_serve();
  serve.set_log_level(wanted.serve().log_level());
  serve.set_stall_after(wanted.serve().stall_after());
  serve.set_read_attempts(wanted.serve().read_attempts());
  serve.set_read_timeout(wanted.serve().read_timeout());
  serve.set_max_bad_samples(wanted.serve().max_bad_samples());
  if (!running.security().tokens_file().empty() &&
      !wanted.security().tokens_file().empty()) {
    v1::Security& security = *config.mutable_security();
    security.set_tokens_file(wanted.security().tokens_file());
    security.set_job(wanted.security().job());
  }
  return config;
}

// Returns whether `key` concerns only this server: paths, or how it works.
bool IsOfOneServer(const std::string& key) {
  return absl::StartsWith(key, "serve.") || key == "security" ||
         absl::StartsWith(key, "security.") || key == "storage" ||
         absl::StartsWith(key, "storage.") ||
         (absl::StartsWith(key, "sources[") &&
          (absl::EndsWith(key, "].path") || absl::EndsWith(key, "].index") ||
           absl::EndsWith(key, "].media_root")));
}

// Returns whether `key` gives steps of train another mixture, data or size.
bool IsOfSteps(const std::string& key) {
  return absl::StartsWith(key, "order.mixture_changes") ||
         absl::StartsWith(key, "order.skips") ||
         absl::StartsWith(key, "batch.rampup") ||
         absl::StartsWith(key, "batch.changes");
}

// What the change of a key that the schedule depends on takes.
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
  const std::optional<ConfigDifference> difference =
      FirstDifference(Adopted(running, wanted), wanted);
  if (!difference.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(difference->key, " is ", difference->a,
                   " in this server and ", difference->b, " in the file; ",
                   IsOfOneServer(difference->key)
                       ? std::string("that takes a restart of this server")
                       : RestartOfAll(difference->key, running, wanted)));
}

}  // namespace ballast
