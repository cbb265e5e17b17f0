#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_H_

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
 *     if (status != BALLAST_OK) break;
 *     train(batch);
 *     ballast_batch_release(batch);
 *   }
 *   if (status != BALLAST_OUT_OF_RANGE) puts(ballast_last_error());
 *   ballast_shim_destroy(shim);
 *
 * Calls. Those that can fail answer a ballast_status, and then leave a message
 * for ballast_last_error and their results (`*shim` above) untouched. Those
 * that end in _destroy, _free, _retain or _release take NULL and do nothing
 * with it; any other
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
 * different threads; functions that may be called beside other calls say so.
 * A batch may be used from any thread. The library
 * has no global state but the message of the last error of each thread. It does
 * not survive fork(2) in the child: make handles after forking.
 */

#include "trainer_shim/c_api/c_api_base.h"
#include "trainer_shim/c_api/c_api_batch.h"
#include "trainer_shim/c_api/c_api_communicator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The packed batches of one rank of one module, in order. */
typedef struct ballast_shim ballast_shim;

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
   * also by a call that fails: it must not be used or destroyed afterwards.
   * BACKEND_HOST: if NULL, the servers deliver to this rank as under
   * balance.delivery: direct, which gives the same batches; then it must be
   * NULL for all ranks of the module. */
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
  /* The answer of ballast_shim_checkpoint: the run goes on at exactly the next
   * position, also with other dp sizes, another micro-batch, delivery, balance
   * or packing, or other servers, as long as the data are the same. NULL:
   * none. */
  const void* checkpoint;
  uint64_t checkpoint_size; /* bytes */
  /* The job must have this fingerprint: 32 hexadecimal digits. NULL or "": any.
   */
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
  /* Batches that may be held at a time, at most 65536. 0: enough for a 1F1B
   * pipeline of the job's deepest module, its number of stages + 2, and at
   * least 4. Memory for a batch is allocated when it is first needed, and then
   * used again: never for more than these batches and, with BACKEND_CUDA and
   * overlap, one that is made ahead. */
  uint32_t max_batches_held;
  uint32_t reserved2;
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

/* Ends what the shim does; other ranks that still exchange with this one end
 * with an error unless all steps are done. Batches that are held stay valid
 * until they are released. Not while another thread is in a call of this shim.
 * May wait for the device. */
BALLAST_API void ballast_shim_destroy(ballast_shim* shim);

/* The batch of the next micro-batch, in order of (step, micro-batch), with one
 * reference of the caller's, who ends it with ballast_batch_release. Always
 * from one thread. Batches that are held are never touched by this call.
 *
 * BACKEND_HOST: `stream` must be NULL. Blocks until the batch is in host
 * memory, for which all ranks of the module must have called.
 *
 * BACKEND_CUDA: `stream` is a cudaStream_t of the shim's device (NULL: the
 * default stream; never cudaStreamPerThread). It waits until the batch is
 * packed; the calling thread waits only for blocks to come from the servers
 * and, before OUT_OF_RANGE, for the device to have read the last ones. Work on
 * other streams that reads the batch must wait for `stream`, and
 * ballast_batch_record_stream names those streams. Several shims on one device
 * (vision and language) are asked in the same order in every process, from one
 * thread.
 *
 * RESOURCE_EXHAUSTED at once, before anything is pulled or exchanged, where
 * max_batches_held batches are held: the message names each by step,
 * micro-batch and references. It ends nothing: after a release the same batch
 * comes. (A RESOURCE_EXHAUSTED that comes again after a release is the job's,
 * and final.)
 *
 * Every other error is final, repeated at every further call, and ends the
 * other ranks of the module too. OUT_OF_RANGE: all steps are done, or the data
 * end. DATA_LOSS (a block, schedule or sample is not what it should be; a peer
 * follows another schedule), UNAVAILABLE (no server answers, or a peer left),
 * DEADLINE_EXCEEDED (timeout_s; no server answers in time), CANCELLED,
 * RESOURCE_EXHAUSTED (no memory), INVALID_ARGUMENT, FAILED_PRECONDITION,
 * INTERNAL. Messages name the rank. BACKEND_CUDA: what the device finds wrong
 * is answered by the next call. An argument that is refused is no such error
 * and changes nothing. */
BALLAST_API int ballast_shim_next(ballast_shim* shim, void* stream,
                                  const ballast_batch** batch);

/* With a tensor_communicator, tensor rank 0 calls ballast_shim_next and then
 * the first of these, once for each batch and before it asks for the next; the
 * others call the second instead of ballast_shim_next. All call at the same
 * place among their collectives. Streams, references, blocking and errors are
 * as for ballast_shim_next; no block is pulled for a rank that receives.
 * Between the two calls the shim holds one reference to the batch itself.
 * FAILED_PRECONDITION, which ends nothing: the other ranks' call, or no batch
 * to send. */
BALLAST_API int ballast_shim_send_to_tensor_peers(ballast_shim* shim,
                                                  void* stream);
BALLAST_API int ballast_shim_receive_from_tensor_peer(
    ballast_shim* shim, void* stream, const ballast_batch** batch);

/* How many batches of the shim somebody holds. From any thread, beside any call
 * but _destroy. */
BALLAST_API int ballast_shim_batches_held(const ballast_shim* shim,
                                          uint32_t* held);

/* Ends a Next that blocks, here and on the module's other ranks, and every
 * later one, with CANCELLED. From any thread, beside any call but _destroy. */
BALLAST_API int ballast_shim_cancel(ballast_shim* shim);

/* Tells the servers what forward and backward of one of this rank's
 * micro-batches took, for `ballastctl fit-cost`, and what waiting for it,
 * copying, exchanging and packing it did, for their metrics (docs/metrics.md).
 * From any thread, beside any call but _destroy. Blocks for a round trip, and a
 * second for each server that hangs. An error ends nothing, and none needs to
 * be acted on. */
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

/* The contents of a checkpoint. */
typedef struct ballast_checkpoint_info {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t next_step;
  /* Fingerprints of the whole job and of its data alone: 32 hexadecimal digits
   * and a 0. */
  char fingerprint[40];
  char data_fingerprint[40];
} ballast_checkpoint_info;

/* Errors: DATA_LOSS (damaged, or cut off), INVALID_ARGUMENT (none at all),
 * UNIMPLEMENTED (of a later version). */
BALLAST_API int ballast_checkpoint_read(const void* checkpoint, size_t size,
                                        ballast_checkpoint_info* info);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_H_ */
