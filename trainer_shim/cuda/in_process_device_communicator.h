#ifndef BALLAST_TRAINER_SHIM_CUDA_IN_PROCESS_DEVICE_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_CUDA_IN_PROCESS_DEVICE_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer_shim/communicator.h"

namespace ballast {

// The communicators of a group whose ranks are threads of this process, on one
// GPU or on several that reach each other's memory: element r is rank r's end,
// and may be moved to its thread. For tests, and for more ranks than GPUs,
// which NCCL refuses.
//
// An exchange is a meeting of all ranks' threads, after which each receiver
// queues one device copy a slice behind the senders' work, and a second meeting
// after which each sender's stream waits for the copies. So, unlike NCCL's, it
// makes the calling thread wait for its peers' threads; never for the device.
// Lengths that differ are INVALID_ARGUMENT for the whole group, naming both
// ranks.
std::vector<std::unique_ptr<Communicator>> InProcessDeviceGroup(uint32_t size);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_IN_PROCESS_DEVICE_COMMUNICATOR_H_
