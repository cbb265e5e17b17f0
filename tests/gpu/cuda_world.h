#ifndef BALLAST_TESTS_GPU_CUDA_WORLD_H_
#define BALLAST_TESTS_GPU_CUDA_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/fakes/test_cluster.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/patchify.h"

namespace ballast {

int DeviceCount();

enum class Exchange {
  kInProcess,  // any number of ranks, all on GPU 0
  kNccl,       // rank r on GPU r
};

// Creates the communicators of a module's group; NCCL's are created by one
// thread per rank. Ends the process on failure.
std::vector<std::unique_ptr<Communicator>> MakeGroup(Exchange exchange,
                                                     uint32_t size);

struct CudaWorldOptions {
  Exchange exchange = Exchange::kInProcess;
  bool overlap = true;
  PixelType pixel_type = PixelType::kFloat32;
  uint64_t step = 0;
  uint64_t steps = 1;
  // Unless null, receives what all ranks decoded; `bytes` and `busy` are sums.
  JpegEngineCounts* decoded = nullptr;
};

// Runs every rank of every module of a job against its servers. Ranks r of all
// modules share a thread and a stream. Returns every batch, copied to the host,
// as TestCluster::RunRanks does without GPUs.
absl::StatusOr<TestCluster::Batches> RunCudaRanks(
    const std::vector<std::string>& servers, const CudaWorldOptions& options);

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_CUDA_WORLD_H_
