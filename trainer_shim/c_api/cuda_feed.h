#ifndef BALLAST_TRAINER_SHIM_C_API_CUDA_FEED_H_
#define BALLAST_TRAINER_SHIM_C_API_CUDA_FEED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer_shim/c_api/rank_feed.h"

namespace ballast {

// The C interface's way to GPUs, of which there are two implementations: one
// that has none. Every function leaves the calling thread's current device as
// it was. UNIMPLEMENTED from all in a build without CUDA.
bool HasCuda();

struct NcclEndOptions {
  int device = 0;
  int max_ctas = 0;
};

absl::StatusOr<std::string> NcclId();
absl::StatusOr<std::unique_ptr<GroupEnd>> NcclEndOfId(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclEndOptions& options);
// Through the first of `servers`.
absl::StatusOr<std::unique_ptr<GroupEnd>> MeetNcclEnd(
    const ServerOptions& servers, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const NcclEndOptions& options);
// `trainers` is an ncclComm_t.
absl::StatusOr<std::unique_ptr<GroupEnd>> BorrowNcclEnd(
    void* trainers, const NcclEndOptions& options);

// As InProcessDeviceGroup.
absl::StatusOr<std::vector<std::unique_ptr<GroupEnd>>> CudaGroup(uint32_t size);

// CudaTrainerShim. `ends` are of the above, or null. Errors: as
// CudaTrainerShim::Create.
absl::StatusOr<std::unique_ptr<RankFeed>> MakeCudaFeed(
    const FeedOptions& options, GroupEnds ends);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_CUDA_FEED_H_
