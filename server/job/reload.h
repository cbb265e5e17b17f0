#ifndef BALLAST_SERVER_JOB_RELOAD_H_
#define BALLAST_SERVER_JOB_RELOAD_H_

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace ballast {

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

#endif  // BALLAST_SERVER_JOB_RELOAD_H_
