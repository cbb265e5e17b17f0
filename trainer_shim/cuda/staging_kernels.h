#ifndef BALLAST_TRAINER_SHIM_CUDA_STAGING_KERNELS_H_
#define BALLAST_TRAINER_SHIM_CUDA_STAGING_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "trainer_shim/cuda/staging_plan.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {

// The kernels of a micro-batch other than patchify's (patchify_cuda.h). Each
// launch is enqueued on `stream` of the current device and neither allocates
// nor waits. All pointers are device addresses, at multiples of 16, and stay
// valid until the kernel is done. Errors: as CudaStatus; INVALID_ARGUMENT (a
// missing address, absurdly large sizes).

// The first error that a device found, in pinned host memory that the device
// writes to; the host may read it at any time.
struct Finding {
  enum Kind : uint32_t {
    kNothing = 0,
    kHeader = 1,  // a peer is at another step or follows another schedule
    kRecord = 2,  // a sample is not the one that the schedule says
    kSent = 3,    // tensor rank 0 sent another micro-batch
  };
  uint32_t kind = kNothing;  // written last
  uint32_t index = 0;        // of the sample
  uint64_t found[2] = {};    // the header; the position and payload_bytes
  uint64_t wanted[2] = {};
};

// Loads the kernels onto the current device. Otherwise their first launches do,
// which may wait for all work on the device, including work that waits for a
// peer. Errors: as CudaStatus.
absl::Status LoadStagingKernels();

// Compares the headers that came from `count` peers with the rank's own.
// `kind`: of the finding where one differs.
absl::Status LaunchCheckHeaders(const ExchangeHeader* received, uint32_t count,
                                const ExchangeHeader& own, Finding* finding,
                                cudaStream_t stream,
                                Finding::Kind kind = Finding::kHeader);

// Compares each sample's record in the landing buffer with the schedule, and
// marks in `placeholders` [count], in host or device memory, the samples that
// could not be read.
struct CheckRecordsArguments {
  const uint8_t* landing = nullptr;
  const RecordCheck* records = nullptr;
  uint32_t count = 0;
  uint8_t* placeholders = nullptr;
  Finding* finding = nullptr;
};
absl::Status LaunchCheckRecords(const CheckRecordsArguments& arguments,
                                cudaStream_t stream);

// PackText (packed_batch.h) on the device. Null tensors are not written.
struct PackTextArguments {
  const uint8_t* landing = nullptr;
  const TextSource* texts = nullptr;           // [samples]
  const int32_t* cu_seqlens_padded = nullptr;  // [samples + 1]
  uint32_t samples = 0;
  ContextSlice context;
  uint64_t tokens = 0;  // L, the context rank's: T / context.size
  uint32_t position_axes = 0;
  int32_t pad_id = 0;
  int64_t* input_ids = nullptr;     // [L]
  int64_t* labels = nullptr;        // [L], with loss_mask
  float* loss_mask = nullptr;       // [L]
  int64_t* position_ids = nullptr;  // [position_axes, L]
  // In its place where the payload has floats (BatchInfo::float_positions).
  float* float_positions = nullptr;
  uint8_t* attention_mask = nullptr;  // [L]
  // Fields: the numbers of a payload's row, and of a payload's value.
  FieldCounts fields;
  int weight_row = -1;                      // FieldTable::weight_row
  uint32_t* field_rows[kMaxFields] = {};    // [L] each
  uint32_t* field_values[kMaxFields] = {};  // [samples] each
};
absl::Status LaunchPackText(const PackTextArguments& arguments,
                            cudaStream_t stream);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_STAGING_KERNELS_H_
