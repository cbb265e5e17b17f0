#ifndef BALLAST_SERVER_SCHEDULE_PACK_SHAPE_H_
#define BALLAST_SERVER_SCHEDULE_PACK_SHAPE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/schedule/ownership.h"

namespace ballast {

// The limits of packs; nullopt unless packing.mode is `scheduled`. `job` has
// the sizes of its steps. Errors: INVALID_ARGUMENT (balance.delivery `off`; no
// language in topology.modules; a step whose samples do not fill the packs of
// all ranks).
absl::StatusOr<std::optional<PackShape>> MakePackShape(const v1::Config& config,
                                                       const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PACK_SHAPE_H_
