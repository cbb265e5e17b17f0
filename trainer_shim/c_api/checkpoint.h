#ifndef BALLAST_TRAINER_SHIM_C_API_CHECKPOINT_H_
#define BALLAST_TRAINER_SHIM_C_API_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/patchify.h"
#include "trainer_shim/rank_shim.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// Serialises a checkpoint: "BALLASTC", the version (u32, 1), 0 (u32), XXH3-64
// of the rest (u64), the message. Little-endian. Pure; equal checkpoints have
// equal bytes.
std::string CheckpointBytes(const v1::Checkpoint& checkpoint);

// Errors: INVALID_ARGUMENT (not a checkpoint), UNIMPLEMENTED (another version,
// naming both), DATA_LOSS (truncated or damaged).
absl::StatusOr<v1::Checkpoint> ParseCheckpoint(absl::string_view bytes);

// One line of JSON: "fingerprint", "data_fingerprint" and every field of the
// job, also fields that are not set, under their names in proto/job.proto.
// Values of enumerations are written as in the configuration ("vision",
// "exchange"), whole numbers as numbers.
std::string JobToJson(const v1::Job& job, const v1::Fingerprint& fingerprint);

// Options of the C interface, checked and with defaults filled in. Pure.
// Errors: INVALID_ARGUMENT naming the field, the value found and the value
// wanted.

// From a ballast_connection.
struct Connection {
  ServerOptions servers;
  FailoverOptions failover;
  uint32_t spread = 0;
  std::string run;  // name of this start of the job; may be empty
  std::string exchange_interface;  // likewise
};

// From ballast_shim_options. Fields for one backend only say so.
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
absl::StatusOr<ballast_backend> GetBackend(int backend);

// `seconds`; 0: `otherwise`.
absl::StatusOr<absl::Duration> GetSeconds(double seconds,
                                          absl::Duration otherwise,
                                          const char* what);

absl::StatusOr<Connection> GetConnection(const ballast_connection* given);

// `known` is the result of ReadStruct. Further errors: as ParseCheckpoint.
absl::StatusOr<ShimOptions> GetShimOptions(const ballast_shim_options& known);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_CHECKPOINT_H_
