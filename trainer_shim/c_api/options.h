#ifndef BALLAST_TRAINER_SHIM_C_API_OPTIONS_H_
#define BALLAST_TRAINER_SHIM_C_API_OPTIONS_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/rank_feed.h"

namespace ballast {

// Options of the C interface, checked and with their defaults. Pure. Errors:
// INVALID_ARGUMENT naming the field, the value and what is wanted.

// `backend` as one of the enumeration's.
absl::StatusOr<ballast_backend> BackendOf(int backend);

// `seconds`; 0: `otherwise`.
absl::StatusOr<absl::Duration> SecondsOf(double seconds,
                                         absl::Duration otherwise,
                                         const char* what);

absl::StatusOr<ServerOptions> ServersOf(const ballast_connection* given);

// `known` is what ReadStruct answered. Errors also: as ParseCheckpoint.
absl::StatusOr<FeedOptions> FeedOptionsOf(const ballast_shim_options& known);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_OPTIONS_H_
