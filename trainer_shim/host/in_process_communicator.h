#ifndef BALLAST_TRAINER_SHIM_HOST_IN_PROCESS_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_HOST_IN_PROCESS_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "trainer_shim/communicator.h"

namespace ballast {

// Creates the communicators of a group whose ranks are threads of this process:
// element r is rank r's end, and may be moved to its thread. The ends share the
// group, which lives as long as any of them. An exchange is two barriers of all
// ranks; between them each receiver makes one memcpy per slice. A rank that
// does not come to an exchange within `timeout` of another ends the group for
// all, with DEADLINE_EXCEEDED and its number.
//
//   auto ends = InProcessGroup(2);
//   std::thread peer([end = std::move(ends[1])] {
//     end->AllToAllV({}, {{0, room}}, nullptr);
//   });
//   ends[0]->AllToAllV({{1, bytes}}, {}, nullptr);
std::vector<std::unique_ptr<Communicator>> InProcessGroup(
    uint32_t size, absl::Duration timeout = absl::Minutes(10));

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_IN_PROCESS_COMMUNICATOR_H_
