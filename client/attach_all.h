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

// Attaches `role` to every one of `servers` (at least one, the primary first),
// all at once, and returns what the first that answered said. `expected` is
// what the caller knows of the job's fingerprint, from a checkpoint say; it may
// be empty.
//
// A rank starts when its primary answers, whatever the others do: one that is
// away, fails or has another fingerprint (a server of another job at a port
// that was used before) is passed over with a line in the log; a Pull from it
// later is refused. If the primary is away (UNAVAILABLE, DEADLINE_EXCEEDED,
// RESOURCE_EXHAUSTED), those others that answer must agree. If none answers,
// all are asked again each second, for `patience`, timed by `clock`; 0: not
// again. Blocks for that, and for as long as the slowest Attach takes.
//
// Errors: as LoaderClient::Attach to the primary, or to the first that failed
// if none answered; UNAVAILABLE if all are away, naming each with its cause;
// FAILED_PRECONDITION if the primary is away and two others have different
// fingerprints, naming both addresses, both fingerprints and the first
// differing key, or if two servers of one fingerprint have another
// balance.delivery; INVALID_ARGUMENT for no servers.
absl::StatusOr<v1::AttachResponse> AttachAll(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected,
    absl::Duration patience = absl::ZeroDuration(),
    Clock* clock = Clock::Real());

}  // namespace ballast

#endif  // BALLAST_CLIENT_ATTACH_ALL_H_
