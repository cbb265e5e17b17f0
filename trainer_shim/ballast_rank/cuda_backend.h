#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_CUDA_BACKEND_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_CUDA_BACKEND_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "trainer_shim/ballast_rank/world.h"

namespace ballast {

// RunWorld with batches made in GPU memory, and copied to the host for
// `on_batch`; equal to the host's to the byte. Rank r of each module runs on
// GPU r modulo the number of GPUs and exchanges over NCCL; ranks meet through
// the first server. NCCL refuses two ranks on one GPU: if all roles run here
// and a module has more ranks than there are GPUs, all of its ranks run on GPU
// 0 and exchange by device copies. Errors: as RunWorld and CudaTrainerShim;
// UNIMPLEMENTED in a build without CUDA; FAILED_PRECONDITION without a GPU.
absl::Status RunCudaWorld(const v1::AttachResponse& attached,
                          const std::vector<v1::Role>& roles,
                          const WorldOptions& options,
                          const MakeClient& make_client,
                          const OnBatch& on_batch);

// "with CUDA" or "without CUDA", for --version.
const char* CudaSupport();

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_CUDA_BACKEND_H_
