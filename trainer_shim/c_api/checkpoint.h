#ifndef BALLAST_TRAINER_SHIM_C_API_CHECKPOINT_H_
#define BALLAST_TRAINER_SHIM_C_API_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/checkpoint.pb.h"

namespace ballast {

// Serialises a checkpoint: "BALLASTC", the version (u32, 1), 0 (u32), XXH3-64
// of the rest (u64), the message. Little-endian. Pure; equal checkpoints have
// equal bytes.
std::string CheckpointBytes(const v1::Checkpoint& checkpoint);

// Errors: INVALID_ARGUMENT (not a checkpoint), UNIMPLEMENTED (another version,
// naming both), DATA_LOSS (truncated or damaged).
absl::StatusOr<v1::Checkpoint> ParseCheckpoint(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_CHECKPOINT_H_
