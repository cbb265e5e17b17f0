#ifndef BALLAST_SERVER_JOB_REVISION_H_
#define BALLAST_SERVER_JOB_REVISION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// What a change of a running job may change, and the configuration that follows
// (docs/changes.md). All functions are pure.

// The configuration of the steps from `first_step` on, when `offered` is
// offered to a job whose configuration is `running`; both are loaded. From
// there on the steps follow `offered`. Weights, sizes and skips become
// entries at steps in order.mixture_changes, batch.changes and order.skips,
// added to the entries of `running`, so the order goes on where it is, and no
// step before is altered. The sources of `running` keep their numbers; an ended
// one stays, with weight 0. The keys of one server (serve, storage, security)
// stay as in `running`.
//
// Errors: INVALID_ARGUMENT, naming the key and both values: one that cannot be
// changed, or an entry for a step before `first_step` that `running` lacks.
absl::StatusOr<v1::Config> ComposeRevision(const v1::Config& running,
                                           const v1::Config& offered,
                                           uint64_t first_step);

// Checks what shows only when the sources are open: `next` is the scheduler of
// a composed configuration, `running` the previous one. Errors:
// INVALID_ARGUMENT: nothing changes; a setting changes by which ranks lay out
// their batches; a step before `first_step` changes; the data end at another
// step (order.epochs). INTERNAL: steps before `first_step` draw other samples,
// which ComposeRevision rules out.
absl::Status CheckRevision(const Scheduler& running, const Scheduler& next,
                           uint64_t first_step);

// The entries of a fingerprint that differ, as "KEY: BEFORE -> AFTER" or "KEY
// from step S: BEFORE -> AFTER", in the order of the keys.
std::vector<std::string> ListDifferences(const v1::Fingerprint& before,
                                         const v1::Fingerprint& after);

// The keys of this server alone with other values in `offered`, which are not
// taken: "serve.memory stays 8GiB here (the file has 4GiB)". The first of each
// section.
std::vector<std::string> ListUntaken(const v1::Config& running,
                                     const v1::Config& offered);

// Checks that a server can adopt its changed configuration file while it
// serves. It can adopt:
//
//   serve.log_level, serve.stall_after, serve.read_attempts,
//   serve.read_timeout, serve.max_bad_samples, security.job,
//   security.tokens_file (and what the file holds), what the files of
//   security.tls hold
//
// Everything else is fixed at start. OK if the two loaded configurations differ
// in these keys alone. Otherwise FAILED_PRECONDITION with the first
// other key that differs, both values, and what the change needs: a restart of
// this server, or of every server and rank, since the schedule's settings must
// be the same for all. That is also true of changes of order and batch at
// future steps: schedules of steps ahead have been sent and cached, and each
// server and rank holds the fingerprint of all steps. The message names the
// first step that they alter: checkpoints of earlier steps can resume. Whether
// tokens are required at all also needs a restart. Pure.
absl::Status CheckReload(const v1::Config& running, const v1::Config& wanted);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_REVISION_H_
