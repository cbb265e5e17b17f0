#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_CUDA_BACKEND_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_CUDA_BACKEND_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "trainer_shim/ballast_rank/world.h"

namespace ballast {

// RunWorld with batches made in the memory of GPUs, and copied from there for
// `on_batch`: the same to the byte. Rank r of each module is on GPU r modulo
// their number and exchanges over NCCL, whose ranks meet through the first
// server. Where all roles run here and there are fewer GPUs than ranks of a
// module, which NCCL refuses, all of that module are on GPU 0 and exchange by
// copies. Errors: as RunWorld, of CudaTrainerShim; UNIMPLEMENTED in a build
// without CUDA; FAILED_PRECONDITION without a GPU.
absl::Status RunCudaWorld(const v1::AttachResponse& attached,
                          const std::vector<v1::Role>& roles,
                          const WorldOptions& options,
                          const MakeClient& make_client,
                          const OnBatch& on_batch);

// "with CUDA" or "without CUDA", for --version.
const char* CudaSupport();

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_CUDA_BACKEND_H_
