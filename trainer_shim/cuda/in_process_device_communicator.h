#ifndef BALLAST_TRAINER_SHIM_CUDA_IN_PROCESS_DEVICE_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_CUDA_IN_PROCESS_DEVICE_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer_shim/communicator.h"

namespace ballast {

// Creates the communicators of a group whose ranks are threads of this process,
// on one GPU or on several that reach each other's memory: element r is rank
// r's end, and may be moved to its thread. For tests, and for more ranks than
// GPUs, which NCCL refuses.
//
// An exchange is a barrier of all ranks' threads, after which each receiver
// enqueues one device copy per slice after the senders' work, and a second
// barrier, after which each sender's stream waits for the copies. Unlike with
// NCCL, the calling thread therefore waits for its peers' threads, but never
// for the device. Lengths that differ are INVALID_ARGUMENT for the whole group,
// naming both ranks.
std::vector<std::unique_ptr<Communicator>> InProcessDeviceGroup(uint32_t size);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_IN_PROCESS_DEVICE_COMMUNICATOR_H_
