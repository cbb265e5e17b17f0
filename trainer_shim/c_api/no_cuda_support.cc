#include "trainer_shim/c_api/cuda_support.h"

namespace ballast {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "BACKEND_CUDA: this library was built without a CUDA toolkit; use "
      "BACKEND_HOST, or a build with one (docs/c_api.md)");
}

}  // namespace

bool HasCuda() { return false; }

absl::StatusOr<std::string> NcclId() { return NoCuda(); }

absl::StatusOr<std::unique_ptr<Communicator>> NcclEndOfId(
    const std::string&, uint32_t, uint32_t, const NcclEndOptions&) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclEnd(
    const std::vector<std::unique_ptr<LoaderClient>>&, const std::string&,
    uint32_t, uint32_t, absl::Duration, const NcclEndOptions&,
    const std::string&) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclEnd(
    void*, const NcclEndOptions&) {
  return NoCuda();
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CudaGroup(uint32_t) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<RankShim>> MakeCudaShim(ShimOptions) {
  return NoCuda();
}

}  // namespace ballast
