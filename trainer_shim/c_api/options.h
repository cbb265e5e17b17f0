#ifndef BALLAST_TRAINER_SHIM_C_API_OPTIONS_H_
#define BALLAST_TRAINER_SHIM_C_API_OPTIONS_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/rank_shim.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// Options of the C interface, checked and with defaults filled in. Pure.
// Errors: INVALID_ARGUMENT naming the field, the value found and the one
// wanted.

// ballast_connection's.
struct Connection {
  ServerOptions servers;
  FailoverOptions failover;
  std::string run;  // name of this start of the job; may be empty
  std::string exchange_interface;  // likewise
};

// ballast_shim_options'. Fields for one backend only say so.
struct ShimOptions {
  RankShim::Options shim;  // without communicators
  ballast_backend backend = BALLAST_BACKEND_HOST;
  PixelType pixel_type = PixelType::kFloat32;
  Normalisation normalisation = Normalisation::kTorchvision;
  int device = 0;  // CUDA, as the next two
  bool overlap = true;
  absl::Duration timeout;
};

// `backend` as one of the enumeration's.
absl::StatusOr<ballast_backend> BackendOf(int backend);

// `seconds`; 0: `otherwise`.
absl::StatusOr<absl::Duration> SecondsOf(double seconds,
                                         absl::Duration otherwise,
                                         const char* what);

absl::StatusOr<Connection> ConnectionOf(const ballast_connection* given);

// `known` is the result of ReadStruct. Further errors: as ParseCheckpoint.
absl::StatusOr<ShimOptions> ShimOptionsOf(const ballast_shim_options& known);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_OPTIONS_H_
