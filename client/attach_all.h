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

// Attaches `role` to all of `servers` (at least one, the primary first) at the
// same time, and returns the answer of the first in order that answered.
// `expected` is the part of the job's fingerprint that the caller knows, for
// example from a checkpoint; it may be empty.
//
// The answer has the changes of the running job that any of the servers knows.
//
// A rank can start once its primary answers. Another server that does not
// answer or fails is skipped and logged. So is a server that has another
// fingerprint than most of those that answer (a server of another job on a
// reused port), also the primary; a later Pull from it is refused. Without such
// a majority, as with two servers, `expected` decides, else nothing does: ranks
// with other primaries would train on other data. If the primary is away
// (UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED), the others that answer
// must agree. If none answers, all are asked again every second for `patience`,
// timed by `clock`; 0: only once. Blocks for that time, and for as long as the
// slowest Attach takes.
//
// Errors: as LoaderClient::Attach to the primary, or to the first that failed
// if none answered; UNAVAILABLE if all are away, naming each with its cause;
// FAILED_PRECONDITION if servers have different fingerprints and there is no
// majority, or the primary is away, naming both addresses, both fingerprints
// and the first differing key, if two servers of one fingerprint differ in
// balance.delivery, or if another rank of the module pulls from one of
// `servers` and requests another Role.delivery (ranks whose lists share no
// server are not compared); INVALID_ARGUMENT if there are no servers.
absl::StatusOr<v1::AttachResponse> AttachAll(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected,
    absl::Duration patience = absl::ZeroDuration(),
    Clock* clock = Clock::Real());

}  // namespace ballast

#endif  // BALLAST_CLIENT_ATTACH_ALL_H_
