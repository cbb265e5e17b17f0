#ifndef BALLAST_TRAINER_SHIM_C_API_H_
#define BALLAST_TRAINER_SHIM_C_API_H_

/* The trainer shim for any language: a plain C interface to libballast_shim.so.
 * docs/c_api.md has a whole program and says how to link.
 *
 *   ballast_connection servers = {sizeof(servers)};
 *   const char* addresses[] = {"unix:/run/ballast/a.sock"};
 *   servers.servers = addresses;
 *   servers.num_servers = 1;
 *   ballast_shim_options options = {sizeof(options)};
 *   options.connection = &servers;
 *   options.module = BALLAST_MODULE_LANGUAGE;
 *   options.dp_rank = 3;
 *   options.communicator = communicator;
 *   ballast_shim* shim = NULL;
 *   int status = ballast_shim_create(&options, &shim);
 *   const ballast_batch* batch = NULL;
 *   while (status == BALLAST_OK) {
 *     status = ballast_shim_next(shim, stream, &batch);
 *     if (status == BALLAST_OK) train(batch);
 *   }
 *   if (status != BALLAST_OUT_OF_RANGE) puts(ballast_last_error());
 *   ballast_shim_destroy(shim);
 *
 * Calls. Those that can fail answer a ballast_status, and then leave a message
 * for ballast_last_error and their results (`*shim` above) untouched. Those
 * that end in _destroy or _free take NULL and do nothing with it; any other
 * pointer that is NULL where nothing says that it may be is
 * BALLAST_INVALID_ARGUMENT. No exception leaves the library; it installs no
 * signal handler. What it has to say beside its answers goes to stderr, a line
 * an event.
 *
 * Structs. Each begins with `struct_size`, which the caller sets to sizeof the
 * struct as it was compiled, so that fields can be appended:
 * - a struct that the library reads: all else may be 0, which means "not given"
 *   or the default that the field names. Fields that a caller of an older
 *   header does not have are taken for 0. A caller of a newer header must leave
 *   the fields that this library does not know at 0, or gets
 *   BALLAST_INVALID_ARGUMENT. What its pointers point to need only live for the
 *   call.
 * - a struct that the library writes: it fills the fields that both know and
 *   sets the caller's others to 0.
 * Fields never change their place or meaning while BALLAST_ABI_VERSION, the
 * number in the library's soname, stays as it is; enumerations may grow.
 *
 * Threads. A handle is for one thread at a time, and different handles for
 * different threads; what may be called beside other calls says so. The library
 * has no global state but the message of the last error of each thread. It does
 * not survive fork(2) in the child: make handles after forking.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BALLAST_API __attribute__((visibility("default")))

/* What this header describes. */
#define BALLAST_ABI_VERSION 1

/* BALLAST_ABI_VERSION of the library that is loaded: a program refuses another
 * than it was compiled for. */
BALLAST_API uint32_t ballast_abi_version(void);
/* The library's version, "1.2.3". Static. */
BALLAST_API const char* ballast_version(void);

/* The same numbers as gRPC's and Abseil's codes. */
typedef enum ballast_status {
  BALLAST_OK = 0,
  BALLAST_CANCELLED = 1,
  BALLAST_UNKNOWN = 2,
  BALLAST_INVALID_ARGUMENT = 3,
  BALLAST_DEADLINE_EXCEEDED = 4,
  BALLAST_NOT_FOUND = 5,
  BALLAST_ALREADY_EXISTS = 6,
  BALLAST_PERMISSION_DENIED = 7,
  BALLAST_RESOURCE_EXHAUSTED = 8,
  BALLAST_FAILED_PRECONDITION = 9,
  BALLAST_ABORTED = 10,
  BALLAST_OUT_OF_RANGE = 11,
  BALLAST_UNIMPLEMENTED = 12,
  BALLAST_INTERNAL = 13,
  BALLAST_UNAVAILABLE = 14,
  BALLAST_DATA_LOSS = 15,
  BALLAST_UNAUTHENTICATED = 16
} ballast_status;

/* "INVALID_ARGUMENT" for 3 and so on; "UNKNOWN" for what is no code. Static. */
BALLAST_API const char* ballast_status_name(int status);

/* Why the last call of this thread that failed did; "" before the first. UTF-8
 * in one line. Valid until the thread's next call that fails. */
BALLAST_API const char* ballast_last_error(void);

typedef enum ballast_module {
  BALLAST_MODULE_VISION = 1,
  BALLAST_MODULE_LANGUAGE = 2
} ballast_module;

/* Where batches are made and lie. */
typedef enum ballast_backend {
  BALLAST_BACKEND_HOST = 1,
  BALLAST_BACKEND_CUDA = 2
} ballast_backend;

/* 1 where the library was built with this backend, else 0. BACKEND_CUDA wants a
 * GPU and its driver besides, which this does not look for. */
BALLAST_API int ballast_has_backend(int backend);

/* Bytes that the library allocated, for the caller to free. */
typedef struct ballast_bytes ballast_bytes;
/* Followed by a byte that is 0 and not counted: text is a C string. Valid until
 * it is freed. NULL and 0 of NULL. */
BALLAST_API const char* ballast_bytes_data(const ballast_bytes* bytes);
BALLAST_API size_t ballast_bytes_size(const ballast_bytes* bytes);
BALLAST_API void ballast_bytes_free(ballast_bytes* bytes);

/* ---- Servers ------------------------------------------------------------ */

/* Of the job's servers: where they are and how both sides know each other. */
typedef struct ballast_connection {
  uint32_t struct_size;
  /* Number of `servers`; at least 1. */
  uint32_t num_servers;
  /* Addresses, `unix:/path` or `host:port`, in order of preference. All that
   * answer are attached to and must have one fingerprint; blocks come from the
   * first, and from the next when it dies, hangs, drains or is too slow. */
  const char* const* servers;
  /* Files. NULL or "": none. TCP goes over TLS where tls_ca (PEM, the CAs of
   * the servers' certificates) is given, which the other three need. */
  const char* tls_ca;
  const char* tls_cert; /* PEM, of this client; with tls_key */
  const char* tls_key;
  const char* tls_server_name; /* in the certificates, where it is another
                                  than the address's */
  const char* token_file;      /* its first line is the bearer token */
  /* Seconds to wait at the start for the first server to answer. 0: it must
   * answer at once. */
  double wait_for_server_s;
  /* Seconds without a byte from a server that may send, then the next one goes
   * on; four times that for a whole block. 0: 30. */
  double hang_after_s;
  /* Seconds without anything from any server, then Next fails. 0: 300. */
  double give_up_after_s;
} ballast_connection;

/* Asks the job's first server that answers what the job is, before there is a
 * shim: to learn how many ranks each module has, say. `job`: as
 * ballast_shim_job answers. Blocks until a server has answered.
 * Errors: INVALID_ARGUMENT, UNAVAILABLE, DEADLINE_EXCEEDED, UNAUTHENTICATED,
 * PERMISSION_DENIED, FAILED_PRECONDITION (the servers differ in fingerprint).
 */
BALLAST_API int ballast_query_job(const ballast_connection* connection,
                                  ballast_bytes** job);

/* ---- Communicators ------------------------------------------------------ */

/* One rank's end of a group of ranks that send each other samples or batches. A
 * shim takes it over. Groups are made of
 * - the data-parallel ranks of a module at one place of its layout (same
 * tensor, pipeline and context rank), ranked by dp_rank: needed where the job's
 *   delivery is `exchange` or `hybrid` and the module has more than one such
 *   rank that receives any tensor;
 * - where one tensor rank pulls for all, the tensor ranks of one data-parallel,
 *   pipeline and context rank, ranked by tp_rank. */
typedef struct ballast_communicator ballast_communicator;

/* Leaves the group: the other ranks' exchanges end with UNAVAILABLE. Only for
 * an end that no shim has taken over. */
BALLAST_API void ballast_communicator_destroy(
    ballast_communicator* communicator);

/* A group whose ranks are threads of this process: element r of `ends` is rank
 * r's, for `size` ranks. For BACKEND_HOST, where it is the only kind there is,
 * and, of BACKEND_CUDA, for threads that share a GPU or whose GPUs reach each
 * other's memory (for tests: NCCL refuses two ranks on one GPU). Each rank's
 * ballast_shim_next then waits for the other ranks' calls, so each wants a
 * thread of its own.
 * Errors: INVALID_ARGUMENT (size 0 or above 65,536, no such backend),
 * UNIMPLEMENTED (a library without CUDA). */
BALLAST_API int ballast_communicator_in_process(int backend, uint32_t size,
                                                ballast_communicator** ends);

/* How a communicator over NCCL is made. NCCL is the one that the process has
 * loaded already (PyTorch's, say), otherwise libnccl.so.2 as the system finds
 * it. */
typedef struct ballast_nccl_options {
  uint32_t struct_size;
  /* CUDA device of this rank; no two ranks of a group share one. */
  int32_t device;
  /* Most thread blocks (CTAs) that an exchange takes from the device, which
   * leaves the others to the trainer's kernels. 0: as NCCL sees fit. */
  uint32_t max_ctas;
  uint32_t reserved;
} ballast_nccl_options;

/* Bytes of an ncclUniqueId. */
#define BALLAST_NCCL_ID_BYTES 128

/* Makes an id (`id`: BALLAST_NCCL_ID_BYTES bytes of the caller's), which one
 * rank of a group does and hands to the others by means of its own. Errors:
 * UNIMPLEMENTED (a library without CUDA), FAILED_PRECONDITION (no NCCL, or one
 * before 2.18), and NCCL's as INTERNAL. */
BALLAST_API int ballast_nccl_id(void* id);

/* Joins the group of that id as rank `rank` of `size`. This and the next two
 * block until all ranks of the group have called them, and answer the errors of
 * ballast_nccl_id besides INVALID_ARGUMENT and, from CUDA, FAILED_PRECONDITION
 * and INTERNAL. */
BALLAST_API int ballast_communicator_nccl(const void* id, uint32_t rank,
                                          uint32_t size,
                                          const ballast_nccl_options* options,
                                          ballast_communicator** communicator);

/* The same, met through the first server of `connection`: no MPI, no address.
 * `group` names the ranks that meet, in the whole job: "language", say. After
 * `timeout_s` seconds (0: 300) without all of them: DEADLINE_EXCEEDED. Errors
 * of the server too, as ballast_query_job. */
BALLAST_API int ballast_communicator_nccl_meet(
    const ballast_connection* connection, const char* group, uint32_t rank,
    uint32_t size, double timeout_s, const ballast_nccl_options* options,
    ballast_communicator** communicator);

/* One split off the trainer's own communicator of the same ranks, an
 * ncclComm_t, which stays the trainer's and must be of the NCCL described
 * above: what the shim aborts is its own. */
BALLAST_API int ballast_communicator_nccl_borrow(
    void* nccl_comm, const ballast_nccl_options* options,
    ballast_communicator** communicator);

/* ---- Shim --------------------------------------------------------------- */

/* The packed batches of one rank of one module, in order. */
typedef struct ballast_shim ballast_shim;

/* Types of elements; also those of ballast_shim_options.pixel_type. */
typedef enum ballast_dtype {
  BALLAST_UINT8 = 1,
  BALLAST_INT32 = 2,
  BALLAST_INT64 = 3,
  BALLAST_FLOAT32 = 4,
  BALLAST_BFLOAT16 = 5,
  BALLAST_BOOL = 6 /* a byte, 0 or 1 */
} ballast_dtype;

/* The two ways in which Hugging Face's processors normalise pixels, which
 * differ in the last bits. */
typedef enum ballast_normalisation {
  BALLAST_NORMALISE_TORCHVISION = 0, /* (x - 255*mean) / (255*std) */
  BALLAST_NORMALISE_PIL = 1          /* (x/255 - mean) / std */
} ballast_normalisation;

typedef struct ballast_shim_options {
  uint32_t struct_size;
  /* ballast_module. Required. */
  int32_t module;
  /* The rank's numbers in its module's layout: data, tensor, pipeline and
   * context parallel. */
  uint32_t dp_rank;
  uint32_t tp_rank;
  uint32_t pp_rank;
  uint32_t cp_rank;
  /* ballast_backend. 0: BACKEND_HOST. */
  int32_t backend;
  /* CUDA device, with BACKEND_CUDA. */
  int32_t device;
  /* Required. */
  const ballast_connection* connection;
  /* This rank's end of its module's group, of the same backend. Taken over,
   * also by a call that fails: it must not be used or destroyed afterwards. */
  ballast_communicator* communicator;
  /* BALLAST_FLOAT32 or BALLAST_BFLOAT16. 0: FLOAT32 with BACKEND_HOST, BFLOAT16
   * with BACKEND_CUDA. */
  int32_t pixel_type;
  /* ballast_normalisation. */
  int32_t normalisation;
  /* First step. Must be 0 with a checkpoint, which says it. */
  uint64_t start_step;
  /* Number of steps. 0: as long as there are data. */
  uint64_t steps;
  /* What ballast_shim_checkpoint answered: the run goes on at exactly the next
   * position, also with other dp sizes, another micro-batch, delivery, balance
   * or packing, or other servers, as long as the data are the same. NULL:
   * none. */
  const void* checkpoint;
  uint64_t checkpoint_size; /* bytes */
  /* What the job's fingerprint must be: 32 hexadecimal digits. NULL or "":
   * anything. */
  const char* fingerprint;
  /* Bytes of blocks that may be held or on their way; one block may always be,
   * however large. 0: 256 MiB. */
  uint64_t max_bytes;
  /* BACKEND_CUDA: 1 makes a batch only when it is asked for. 0: Next also gives
   * the device the work of the batch after, which then runs beside the
   * trainer's step. */
  uint32_t no_overlap;
  uint32_t reserved;
  /* BACKEND_CUDA: seconds after which work that the device has not done counts
   * as hung: a peer is gone or far behind. 0: 600. */
  double timeout_s;
  /* This rank's end of its tensor peers, of the same backend, taken over like
   * `communicator`: tensor rank 0 then pulls for all (see
   * ballast_shim_send_to_tensor_peers). NULL: each pulls for itself. */
  ballast_communicator* tensor_communicator;
  /* 1: a stage of the language module wants these wherever it stands, as one
   * that predicts several tokens (MTP) does. */
  uint32_t needs_input_ids;
  uint32_t needs_labels;
} ballast_shim_options;

/* Attaches to the servers and begins to fetch, in threads of the shim's own.
 * Blocks until all servers have answered or failed to. With BACKEND_CUDA all
 * shims of a process are created before Next of any is called
 * (docs/gpu_shim.md); the calling thread's current device stays as it was, as
 * in every call. Errors: INVALID_ARGUMENT (naming the option),
 * FAILED_PRECONDITION (fingerprints differ, the data are not the checkpoint's,
 * no GPU), UNIMPLEMENTED (a library without CUDA), UNAVAILABLE
 * and DEADLINE_EXCEEDED (no server answers: each with its cause),
 * UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED, INTERNAL. */
BALLAST_API int ballast_shim_create(const ballast_shim_options* options,
                                    ballast_shim** shim);

/* Ends what the shim does, and its batches; other ranks that still exchange
 * with this one end with an error unless all steps are done. Not while another
 * thread is in a call of this shim. May wait for the device. */
BALLAST_API void ballast_shim_destroy(ballast_shim* shim);

/* What a rank trains on in one micro-batch: named tensors, the samples that
 * they hold, and numbers. Which tensors there are follows from the rank's
 * module and its place in it. Valid until the next call of ballast_shim_next or
 * _destroy of its shim; so are all pointers that come from it. */
typedef struct ballast_batch ballast_batch;

/* The batch of the next micro-batch, in order of (step, micro-batch). Always
 * from one thread.
 *
 * BACKEND_HOST: `stream` must be NULL. Blocks until the batch is in host
 * memory, for which all ranks of the module must have called.
 *
 * BACKEND_CUDA: `stream` is a cudaStream_t of the shim's device (NULL: the
 * default stream). It waits until the batch is packed; the calling thread waits
 * only for blocks to come from the servers. The batch may be read by work given
 * to `stream`, or to one that waits for it, before the next call of
 * ballast_shim_next, which must be of the same stream or of one that waits for
 * it: whatever is given later may find the memory overwritten. A tensor that is
 * kept is copied first. Several shims on one device (vision and language) are
 * asked in the same order in every process, from one thread.
 *
 * Every error is final, repeated at every further call, and ends the other
 * ranks of the module too. OUT_OF_RANGE: all steps are done, or the data end.
 * DATA_LOSS (a block, schedule or sample is not what it should be; a peer
 * follows another schedule), UNAVAILABLE (no server answers, or a peer left),
 * DEADLINE_EXCEEDED (timeout_s; no server answers in time), CANCELLED,
 * RESOURCE_EXHAUSTED, INVALID_ARGUMENT, FAILED_PRECONDITION, INTERNAL. Messages
 * name the rank. BACKEND_CUDA: what the device finds wrong is answered by the
 * next call. An argument that is refused is no such error and changes nothing.
 */
BALLAST_API int ballast_shim_next(ballast_shim* shim, void* stream,
                                  const ballast_batch** batch);

/* With a tensor_communicator, tensor rank 0 calls Next and then the first of
 * these, once for each batch and before the next Next; the others call the
 * second instead of Next. All at the same place among their collectives. What
 * is said of Next's stream, batch, blocking and errors holds for both; no block
 * is pulled for a rank that receives. FAILED_PRECONDITION, which ends nothing:
 * the other ranks' call (of Next, too), or no batch to send. */
BALLAST_API int ballast_shim_send_to_tensor_peers(ballast_shim* shim,
                                                  void* stream);
BALLAST_API int ballast_shim_receive_from_tensor_peer(
    ballast_shim* shim, void* stream, const ballast_batch** batch);

/* Ends a Next that blocks, here and on the module's other ranks, and every
 * later one, with CANCELLED. From any thread, beside any call but _destroy. */
BALLAST_API int ballast_shim_cancel(ballast_shim* shim);

/* Tells the servers what forward and backward of one of this rank's
 * micro-batches took, for `ballastctl fit-cost`. From any thread, beside any
 * call but _destroy. Blocks for a round trip, and a second for each server that
 * hangs. An error ends nothing, and none needs to be acted on. */
BALLAST_API int ballast_shim_report_timing(ballast_shim* shim, uint64_t step,
                                           uint32_t micro_batch,
                                           double milliseconds);

/* The job, as one JSON object: "fingerprint", "data_fingerprint", and the
 * fields of ballast.v1.Job under their names in proto/job.proto: "modules" (a
 * list of {"module": "vision", "dp", "align", ...}), "global_batch",
 * "micro_batch", "delivery", "model" ({"patch", "merge", "temporal_patch",
 * "mean", "std", "token_ids", "position_axes", ...}), "end_step". Values of
 * enumerations are in lower case as in the configuration. */
BALLAST_API int ballast_shim_job(const ballast_shim* shim, ballast_bytes** job);

/* The schedule of the last batch's step, in the JSON of `ballastctl schedule
 * --json`. Errors: FAILED_PRECONDITION (there is no batch). */
BALLAST_API int ballast_shim_schedule(const ballast_shim* shim,
                                      ballast_bytes** schedule);

/* As `next_step`: the step after the last one whose batches Next has all given
 * out. */
#define BALLAST_AFTER_LAST_STEP UINT64_MAX

/* A checkpoint of the data for a run that goes on with `next_step`: the same on
 * all ranks, a few kilobytes that say nothing but that step and the
 * fingerprint. */
BALLAST_API int ballast_shim_checkpoint(const ballast_shim* shim,
                                        uint64_t next_step,
                                        ballast_bytes** checkpoint);

/* What a checkpoint says. */
typedef struct ballast_checkpoint_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t next_step;
  /* Of the whole job and of its data alone: 32 hexadecimal digits and a 0. */
  char fingerprint[40];
  char data_fingerprint[40];
} ballast_checkpoint_info;

/* Errors: DATA_LOSS (damaged, or cut off), INVALID_ARGUMENT (none at all),
 * UNIMPLEMENTED (of a later version). */
BALLAST_API int ballast_checkpoint_read(const void* checkpoint, size_t size,
                                        ballast_checkpoint_info* info);

/* ---- Batch -------------------------------------------------------------- */

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
  /* What packing took in host time, exchange and waiting not counted; 0 with
   * BACKEND_CUDA, where it is the device's work. */
  double pack_ms;
} ballast_batch_info;

BALLAST_API int ballast_batch_get_info(const ballast_batch* batch,
                                       ballast_batch_info* info);

/* Where memory lies: the numbers of DLPack's kDLCPU and kDLCUDA. */
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
   * it. BACKEND_CUDA: known only once the device has packed the batch, and 0
   * before. */
  uint32_t placeholder;
  uint32_t reserved;
} ballast_sample;

/* Number `index`, from 0 to ballast_batch_info.num_samples - 1, in the order in
 * which they are packed; the same on paired ranks of the other module. Errors:
 * INVALID_ARGUMENT (no such sample). */
BALLAST_API int ballast_batch_get_sample(const ballast_batch* batch,
                                         uint32_t index,
                                         ballast_sample* sample);

/* Whose samples totals are of. */
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

#endif /* BALLAST_TRAINER_SHIM_C_API_H_ */
