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

// Attaches `role` to every one of `servers` (at least one), all at once, and
// answers what the first that answered said. All servers of a job must have one
// fingerprint. `expected` is what the caller knows of it, from a checkpoint
// say; it may be empty. A server that is away (UNAVAILABLE, DEADLINE_EXCEEDED)
// is passed over with a line in the log, so that a rank starts while one server
// is down; its own Pull refuses another fingerprint later. Where
// none answers all are asked again each second, for `patience`, timed by
// `clock`; 0: not again. Blocks for that, and for as long as the slowest Attach
// takes. Errors: those of LoaderClient::Attach; UNAVAILABLE when no server
// answers, naming each with its cause; FAILED_PRECONDITION when a server's
// fingerprint is not the first one's, naming both addresses, both fingerprints
// and the first differing key, or when its balance.delivery is not;
// INVALID_ARGUMENT for no servers.
absl::StatusOr<v1::AttachResponse> AttachAll(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected,
    absl::Duration patience = absl::ZeroDuration(),
    Clock* clock = Clock::Real());

}  // namespace ballast

#endif  // BALLAST_CLIENT_ATTACH_ALL_H_
