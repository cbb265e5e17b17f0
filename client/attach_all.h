#ifndef BALLAST_CLIENT_ATTACH_ALL_H_
#define BALLAST_CLIENT_ATTACH_ALL_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// Attaches `role` to all `servers` (at least one) at once and returns the
// answer of the first in order that gave one. All servers of a job must have
// one fingerprint. `expected` is what the caller knows of it, for instance from
// a checkpoint; it may be empty. A server that is away (UNAVAILABLE,
// DEADLINE_EXCEEDED) is passed over with a line in the log, so that a rank
// starts while one server is down; its Pull refuses another fingerprint later.
// Where none answers, all are asked again each second for `patience`, timed by
// `clock`; 0: once. Blocks for that, and for the slowest Attach. Errors: as
// LoaderClient::Attach; UNAVAILABLE when no server answers, naming each with
// its cause; FAILED_PRECONDITION when a server's fingerprint or
// balance.delivery is not the first one's, naming both addresses, both values
// and the first differing key; INVALID_ARGUMENT for no servers.
absl::StatusOr<v1::AttachResponse> AttachAll(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected,
    absl::Duration patience = absl::ZeroDuration(),
    Clock* clock = Clock::Real());

}  // namespace ballast

#endif  // BALLAST_CLIENT_ATTACH_ALL_H_
