#ifndef BALLAST_SERVER_SERVICE_REHEARSAL_H_
#define BALLAST_SERVER_SERVICE_REHEARSAL_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "server/delivery/loader.h"

namespace ballast {

// The roles to rehearse: `first_ranks`, roles of train, then the same roles of
// the job's other splits. Pure.
std::vector<v1::Role> RolesToRehearse(const std::vector<v1::Role>& first_ranks,
                                      const v1::Job& job);

// Builds the first block of each role, micro-batch 0 of step 0, as if a rank
// had requested it, and releases it. This shows that the schedule can be made,
// that the data can be read and decoded, and that there is memory for blocks. A
// job that continues at a later step does not use these blocks; they are among
// the first to be evicted. OK if the data have no step 0. Blocks until they are
// built, which serve.read_timeout bounds if a disk hangs. Errors: as
// Loader::OpenStream and the block, with the role.
absl::Status Rehearse(Loader* loader, const std::vector<v1::Role>& roles);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REHEARSAL_H_
