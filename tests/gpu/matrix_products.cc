#include "tests/gpu/matrix_products.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/gpu/device_testing.h"

namespace ballast {
namespace {

constexpr int kMatrix = 8192;

absl::Status StatusOf(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuBLAS: status ", status));
}

}  // namespace

struct MatrixProducts::Library {
  ~Library() {
    if (handle != nullptr) destroy(handle);
  }
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  // cublasGemmEx, which is overloaded.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                         int, int, int, const void*, const void*, cudaDataType,
                         int, const void*, cudaDataType, int, const void*,
                         void*, cudaDataType, int, cublasComputeType_t,
                         cublasGemmAlgo_t) = nullptr;
  cublasHandle_t handle = nullptr;
};

absl::StatusOr<MatrixProducts> MatrixProducts::Create(cudaStream_t stream) {
  void* found = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    if (found == nullptr) found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (found == nullptr) {
    return absl::FailedPreconditionError("no cuBLAS on this machine");
  }
  auto library = std::make_shared<Library>();
  const auto resolve = [found](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(
        dlsym(found, name));
    return *function != nullptr;
  };
  if (!resolve("cublasCreate_v2", &library->create) ||
      !resolve("cublasDestroy_v2", &library->destroy) ||
      !resolve("cublasSetStream_v2", &library->set_stream) ||
      !resolve("cublasGemmEx", &library->gemm)) {
    return absl::FailedPreconditionError("cuBLAS lacks a function");
  }
  BALLAST_RETURN_IF_ERROR(StatusOf(library->create(&library->handle)));
  BALLAST_RETURN_IF_ERROR(
      StatusOf(library->set_stream(library->handle, stream)));
  MatrixProducts products(std::move(library));
  constexpr uint64_t kValues = uint64_t{kMatrix} * kMatrix;
  products.a_ = Filled<uint16_t>(kValues, 0x3C);
  products.b_ = Filled<uint16_t>(kValues, 0x3C);
  products.c_ = Filled<uint16_t>(kValues, 0);
  return products;
}

absl::Status MatrixProducts::Enqueue(int count) {
  const float one = 1, zero = 0;
  for (int i = 0; i < count; ++i) {
    BALLAST_RETURN_IF_ERROR(StatusOf(library_->gemm(
        library_->handle, CUBLAS_OP_N, CUBLAS_OP_N, kMatrix, kMatrix, kMatrix,
        &one, a_.data(), CUDA_R_16BF, kMatrix, b_.data(), CUDA_R_16BF, kMatrix,
        &zero, c_.data(), CUDA_R_16BF, kMatrix, CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT)));
  }
  return absl::OkStatus();
}

}  // namespace ballast
