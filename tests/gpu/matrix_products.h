#ifndef BALLAST_TESTS_GPU_MATRIX_PRODUCTS_H_
#define BALLAST_TESTS_GPU_MATRIX_PRODUCTS_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {

// A trainer's step for benchmarks: products of bfloat16 matrices that fill the
// GPU. cuBLAS is found at run time, so that a program with other measurements
// runs without it.
class MatrixProducts {
 public:
  // Work comes on `stream`. Errors: FAILED_PRECONDITION (no cuBLAS 12 or 13).
  static absl::StatusOr<MatrixProducts> Create(cudaStream_t stream);

  // Enqueues `count` products. Errors: INTERNAL.
  absl::Status Enqueue(int count);

 private:
  struct Library;
  explicit MatrixProducts(std::shared_ptr<Library> library)
      : library_(std::move(library)) {}

  std::shared_ptr<Library> library_;
  DeviceBuffer a_, b_, c_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_MATRIX_PRODUCTS_H_
