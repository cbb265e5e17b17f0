#ifndef BALLAST_SERVER_SERVICE_REHEARSAL_H_
#define BALLAST_SERVER_SERVICE_REHEARSAL_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "server/delivery/loader.h"

namespace ballast {

// Builds the first block of each role, micro-batch 0 of step 0, as if a rank
// had asked for it, and lets go of it: afterwards it is known that the schedule
// can be made, that the data can be read and decoded and that there is memory
// for blocks. A job that goes on at a later step builds these for nothing; they
// are among the first that make room. OK where the data have no step 0. Blocks
// for as long as the blocks take, which serve.read_timeout bounds where a disk
// hangs. Errors: those of Loader::OpenStream and of the block, with the role.
absl::Status Rehearse(Loader* loader, const std::vector<v1::Role>& roles);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REHEARSAL_H_
