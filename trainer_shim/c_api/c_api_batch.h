#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_BATCH_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_BATCH_H_

/* Part of the C interface (c_api.h has the rules): packed batches. */

#include "trainer_shim/c_api/c_api_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A rank's packed batch of one micro-batch: named tensors, the samples that
 * they hold, and totals. The rank's module and its place in it decide which
 * tensors there are.
 *
 * A batch is reference-counted. ballast_shim_next returns it with one
 * reference. While any reference is held, the batch and all pointers obtained
 * from it stay valid and unchanged, also after further calls of
 * ballast_shim_next and after ballast_shim_destroy. Its functions may be called
 * from any thread. */
typedef struct ballast_batch ballast_batch;

/* Adds a reference, for a further holder. From any thread that holds one. */
BALLAST_API void ballast_batch_retain(const ballast_batch* batch);

/* Removes a reference. The last one returns the memory to the shim's pool (or
 * frees it, if the shim is gone). Never waits. From any thread, also after
 * ballast_shim_destroy. BACKEND_CUDA: may be called as soon as the work that
 * reads the batch has been enqueued on its streams (the stream of
 * ballast_shim_next and the streams of ballast_batch_record_stream), all of
 * which must still exist. The memory is reused only after the work enqueued on
 * them by then. */
BALLAST_API void ballast_batch_release(const ballast_batch* batch);

/* Names a further stream whose work reads the batch (a cudaStream_t of the
 * shim's device; NULL: the default stream). That work must wait for the stream
 * of ballast_shim_next. BACKEND_HOST: does nothing. Errors: INTERNAL (from
 * CUDA), INVALID_ARGUMENT (cudaStreamPerThread). */
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
  int32_t vision_max_seqlen; /* longest attention segment of an image or video,
                                in patches; 0 on a language rank */
  /* 1: the last image, or clip, belongs to no sample. It lets this rank take
   * part in the encoder's collectives; no token refers to it. Multiply the
   * tower's output for it by zero instead of dropping it, so that gradients
   * flow. No totals count it. */
  uint32_t dummy_image;
  uint32_t reserved;
  /* Bytes of the pulled block, and bytes sent to other ranks. */
  uint64_t bytes_read;
  uint64_t bytes_moved;
  /* Host time of packing in milliseconds, without exchange and waiting. 0 with
   * BACKEND_CUDA, where the batch is returned before the device has packed it;
   * ballast_shim_report_timing reports that time to the servers. */
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

/* A tensor of a batch: dense and row-major. ballast_tensor_table lists all
 * tensors that batches can have, with their types, shapes and the ranks that
 * receive them; docs/thd_format.md explains the arrays. Small tensors also have
 * a copy in host memory, with _host appended to the name, so that their values
 * can be read without waiting for the device. */
typedef struct ballast_tensor {
  uint32_t struct_size;
  int32_t dtype; /* ballast_dtype */
  const char* name;
  /* Address on the device. May be NULL if a dimension is 0. Read-only.
   * BACKEND_CUDA: a multiple of 256, except in host memory. */
  void* data;
  int32_t device_type; /* ballast_device_type */
  int32_t device_id;   /* CUDA's number; 0 for the CPU */
  uint32_t ndim;       /* 1 to 4 */
  uint32_t reserved;
  int64_t shape[4]; /* the first ndim, then 0 */
} ballast_tensor;

/* Returns tensor `index`, from 0 to ballast_batch_info.num_tensors - 1, in a
 * fixed order. Errors: INVALID_ARGUMENT (no such tensor). */
BALLAST_API int ballast_batch_get_tensor(const ballast_batch* batch,
                                         uint32_t index,
                                         ballast_tensor* tensor);

/* Returns the tensor of this name. Errors: NOT_FOUND (the batch has none of
 * this name; lists the names that it has). */
BALLAST_API int ballast_batch_find_tensor(const ballast_batch* batch,
                                          const char* name,
                                          ballast_tensor* tensor);

/* Describes every tensor that a batch can have, in the order in which batches
 * list them, as a JSON list of objects:
 *   "name"       also the name of its copy in host memory, without _host
 *   "dtype"      as in docs/thd_format.md, such as "int64"
 *   "shape"      in its letters, such as "[C, 2]"
 *   "receivers"  the module and its pipeline stages, such as "language, first
 *                stage"
 *   "joins"      how samples form the tensor: "tokens", "sums", "items",
 *                "padded items" or "ranks"
 *   "memory"     "packed" (from the samples' bytes), "listed" (from the
 *                schedule, with a copy in host memory), "listed once" (without
 *                the copy) or "host" (in host memory alone)
 *   "contents"   a sentence */
BALLAST_API int ballast_tensor_table(ballast_bytes** table);

/* The sample at one place of the batch. */
typedef struct ballast_sample {
  uint32_t struct_size;
  uint32_t source;   /* number of the source in the configuration */
  uint64_t position; /* place in the global order */
  uint64_t ordinal;  /* number in the source's index */
  const char* name;  /* "SOURCE:ORDINAL" */
  /* 1: it could not be read; grey images and unsupervised tokens replace it.
   * BACKEND_CUDA: known only once the device has packed the batch, and
   * meaningless before. */
  uint32_t placeholder;
  uint32_t reserved;
} ballast_sample;

/* Returns sample `index`, from 0 to ballast_batch_info.num_samples - 1, in
 * packing order, which is the same on the paired ranks of the other module
 * unless balance.placement is `split`.
 * Errors: INVALID_ARGUMENT (no such sample). */
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
 * collective. Padded sums use each sample's length with padding (with
 * packing.mode `padded` the length of its row), the others its real length. */
typedef struct ballast_totals {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t samples;
  uint64_t tokens;
  uint64_t tokens_squared; /* sum of each sample's tokens squared */
  uint64_t padded_tokens;
  uint64_t padded_tokens_squared;
  uint64_t label_tokens; /* tokens that the loss counts */
  uint64_t patches;      /* of images and videos */
  uint64_t images;       /* without videos */
  uint64_t videos;
  uint64_t clips;  /* of audio */
  uint64_t frames; /* of them that count */
} ballast_totals;

/* Returns totals. `of`: a ballast_totals_of. */
BALLAST_API int ballast_batch_get_totals(const ballast_batch* batch, int of,
                                         ballast_totals* totals);

/* Writes XXH3-128 over all tensors and dummy_image to `digest`: 32 hexadecimal
 * digits and a 0 byte (33 bytes). Equal batches have equal digests, on either
 * backend. Meant for tests and tools: BACKEND_CUDA copies the batch to the host
 * and waits for `stream`, the one given to ballast_shim_next. */
BALLAST_API int ballast_batch_digest(const ballast_batch* batch, void* stream,
                                     char* digest);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_BATCH_H_ */
