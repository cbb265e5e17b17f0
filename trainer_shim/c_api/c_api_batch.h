#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_BATCH_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_BATCH_H_

/* Part of the C interface (c_api.h has the rules): what a rank trains on. */

#include "trainer_shim/c_api/c_api_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank trains on in one micro-batch: named tensors, the samples that
 * they hold, and numbers. Which tensors there are follows from the rank's
 * module and its place in it.
 *
 * A batch is counted: whoever got it from ballast_shim_next holds one
 * reference, and it stays valid and unchanged, with all pointers that come from
 * it, as long as there is a reference, also after further calls of
 * ballast_shim_next and after ballast_shim_destroy. Its functions may be called
 * from any thread. */
typedef struct ballast_batch ballast_batch;

/* One reference more, for a further holder. From any thread that holds one. */
BALLAST_API void ballast_batch_retain(const ballast_batch* batch);

/* One reference less; the last one gives the memory back to the shim's pool (or
 * frees it, if the shim is gone). Never waits. From any thread, also after
 * ballast_shim_destroy. BACKEND_CUDA: may be called as soon as the work that
 * reads the batch has been given to its streams (the one of ballast_shim_next
 * and those of ballast_batch_record_stream), all of which still exist: the
 * memory is used again after the work that they have been given by then. */
BALLAST_API void ballast_batch_release(const ballast_batch* batch);

/* Names a further stream (a cudaStream_t of the shim's device, NULL: the
 * default stream) whose work reads the batch; that work must wait for the
 * stream of ballast_shim_next. BACKEND_HOST: does nothing. Errors: from CUDA,
 * INTERNAL. */
BALLAST_API int ballast_batch_record_stream(const ballast_batch* batch,
                                            void* stream);

typedef struct ballast_batch_info {
  uint32_t struct_size;
  int32_t module; /* ballast_module, and the rank's numbers */
  uint32_t dp_rank;
  uint32_t tp_rank;
  uint32_t pp_rank;
  uint32_t cp_rank;
  uint64_t step;
  uint32_t micro_batch;       /* number within the step */
  uint32_t num_micro_batches; /* of the step, the same on every rank */
  uint32_t num_tensors;
  uint32_t num_samples;
  int32_t max_seqlen;        /* longest padded sample; 0 on a vision rank */
  int32_t vision_max_seqlen; /* longest attention segment of an image, in
                                patches; 0 on a language rank */
  /* 1: the last image belongs to no sample. It is there so that this rank takes
   * part in the vision tower's collectives; no token refers to it. What comes
   * out of the tower for it is multiplied by zero, not dropped, so that
   * gradients flow. No totals count it. */
  uint32_t dummy_image;
  uint32_t reserved;
  /* Bytes of the block that was pulled, and of what left for other ranks. */
  uint64_t bytes_read;
  uint64_t bytes_moved;
  /* Host time that packing took, exchange and waiting not counted; 0 with
   * BACKEND_CUDA, where the batch is handed out before the device has packed
   * it: ballast_shim_report_timing tells the servers what that took. */
  double pack_ms;
} ballast_batch_info;

BALLAST_API int ballast_batch_get_info(const ballast_batch* batch,
                                       ballast_batch_info* info);

/* The device of a piece of memory: the numbers of DLPack's kDLCPU and kDLCUDA.
 */
typedef enum ballast_device_type {
  BALLAST_DEVICE_CPU = 1,
  BALLAST_DEVICE_CUDA = 2
} ballast_device_type;

/* Dense and row-major. n samples, T padded tokens, of which a context rank has
 * L = T / cp (its zig-zag part of every sample), P patches, V values a patch
 * (3*temporal_patch*patch*patch); docs/thd_format.md explains the arrays.
 *
 *   name               type     shape   pipeline stages of language
 *   input_ids          int64    [1, L]  first
 *   labels             int64    [1, L]  last; shifted; -100 unsupervised
 *   loss_mask          float32  [1, L]  last
 *   position_ids       int64    [3, 1, L] (MRoPE) or [1, L]   all
 *   cu_seqlens         int32    [n+1]   all; real lengths, of whole samples
 *   cu_seqlens_padded  int32    [n+1]   all; their places; ends with T
 *                                       of vision
 *   pixel_values       bfloat16 or float32 [P, V]             first
 *   image_grid_thw     int64    [number of images, 3]         first
 *   vision_cu_seqlens  int32    [attention segments + 1]      first
 *
 * The small ones, cu_seqlens, cu_seqlens_padded, image_grid_thw and
 * vision_cu_seqlens, are there a second time in host memory, with _host after
 * the name, so that their values are known without waiting for the device. */
typedef struct ballast_tensor {
  uint32_t struct_size;
  int32_t dtype; /* ballast_dtype */
  const char* name;
  /* Address on the device. May be NULL where a side is 0. Not to be written
   * to. BACKEND_CUDA: a multiple of 256, but for host memory. */
  void* data;
  int32_t device_type; /* ballast_device_type */
  int32_t device_id;   /* CUDA's number; 0 for the CPU */
  uint32_t ndim;       /* 1 to 4 */
  uint32_t reserved;
  int64_t shape[4]; /* the first ndim, then 0 */
} ballast_tensor;

/* Number `index`, from 0 to ballast_batch_info.num_tensors - 1, in a fixed
 * order. Errors: INVALID_ARGUMENT (no such tensor). */
BALLAST_API int ballast_batch_get_tensor(const ballast_batch* batch,
                                         uint32_t index,
                                         ballast_tensor* tensor);

/* Which sample stands in a place of the batch. */
typedef struct ballast_sample {
  uint32_t struct_size;
  uint32_t source;   /* number of the source in the configuration */
  uint64_t position; /* place in the global order */
  uint64_t ordinal;  /* number in the source's index */
  const char* name;  /* "SOURCE:ORDINAL" */
  /* 1: it could not be read, and grey images and unsupervised tokens stand for
   * it. BACKEND_CUDA: known only once the device has packed the batch, and
   * meaningless before. */
  uint32_t placeholder;
  uint32_t reserved;
} ballast_sample;

/* Number `index`, from 0 to ballast_batch_info.num_samples - 1, in the order in
 * which they are packed; the same on paired ranks of the other module. Errors:
 * INVALID_ARGUMENT (no such sample). */
BALLAST_API int ballast_batch_get_sample(const ballast_batch* batch,
                                         uint32_t index,
                                         ballast_sample* sample);

/* The samples that totals are summed over. */
typedef enum ballast_totals_of {
  BALLAST_TOTALS_RANK = 0,        /* this rank's in this micro-batch */
  BALLAST_TOTALS_MICRO_BATCH = 1, /* all ranks' in this micro-batch */
  BALLAST_TOTALS_STEP = 2         /* all ranks' in the whole step */
} ballast_totals_of;

/* Exact sums over samples, for loss scaling and throughput without a
 * collective. Padded numbers count each sample at its aligned length; the
 * others are real. */
typedef struct ballast_totals {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t samples;
  uint64_t tokens;
  uint64_t tokens_squared; /* sum of each sample's tokens squared */
  uint64_t padded_tokens;
  uint64_t padded_tokens_squared;
  uint64_t label_tokens; /* tokens that the loss counts */
  uint64_t patches;
  uint64_t images;
} ballast_totals;

/* `of`: a ballast_totals_of. */
BALLAST_API int ballast_batch_get_totals(const ballast_batch* batch, int of,
                                         ballast_totals* totals);

/* XXH3-128 over all tensors and dummy_image, as 32 hexadecimal digits and a 0
 * in `digest` (33 bytes): equal batches have equal digests, on either backend.
 * For tests and tools: BACKEND_CUDA copies the batch to the host and waits for
 * `stream`, the one that Next was called with. */
BALLAST_API int ballast_batch_digest(const ballast_batch* batch, void* stream,
                                     char* digest);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_BATCH_H_ */
