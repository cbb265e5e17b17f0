#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_H_

/* The trainer shim for any language: a plain C interface to libballast_shim.so.
 * docs/c_api.md has a complete program and says how to link.
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
 * Calls. A function that can fail returns a ballast_status. If it fails, it
 * leaves its results (`*shim` above) untouched and a message for
 * ballast_last_error. Functions that end in _destroy, _free, _retain or
 * _release ignore NULL. Elsewhere a NULL pointer is BALLAST_INVALID_ARGUMENT
 * unless its description allows it. No exception leaves the library, and it
 * installs no signal handler. Events that no call returns are logged to stderr,
 * one line each.
 *
 * Structs. Each begins with `struct_size`, which the caller sets to sizeof the
 * struct as it was compiled, so that fields can be appended:
 * - a struct that the library reads: every other field may be 0, which means
 *   "not given" or the default that the field names. Fields that the header of
 *   an older caller lacks are taken as 0. A caller of a newer header must leave
 *   the fields that this library does not know at 0, or gets
 *   BALLAST_INVALID_ARGUMENT. Data that its pointers point to need only live
 *   for the duration of the call.
 * - a struct that the library writes: the library fills the fields that both
 *   sides know and sets the caller's other fields to 0.
 * Fields never change their place or meaning while BALLAST_ABI_VERSION, the
 * number in the library's soname, stays the same; enumerations may grow.
 *
 * Threads. A handle may be used by one thread at a time, different handles by
 * different threads. Functions that may be called at the same time as other
 * calls say so. A batch may be used from any thread. The only global state of
 * the library is each thread's last error message. Handles do not survive
 * fork(2) in the child: create them after forking.
 */

#include "trainer_shim/c_api/c_api_base.h"
#include "trainer_shim/c_api/c_api_batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The packed batches of one rank of one module, in order. */
typedef struct ballast_shim ballast_shim;

/* The formulas by which Hugging Face's processors normalise pixels; their
 * results differ in the last bits. */
typedef enum ballast_normalisation {
  BALLAST_NORMALISE_TORCHVISION = 0, /* (x - 255*mean) / (255*std) */
  BALLAST_NORMALISE_PIL = 1,         /* (x/255 - mean) / std */
  BALLAST_NORMALISE_BFLOAT16 = 2 /* likewise, each result a bfloat16: Llama 4 */
} ballast_normalisation;

/* The purpose of samples (sources[].split). Each split has its own order and
 * its own steps. */
typedef enum ballast_split {
  BALLAST_SPLIT_TRAIN = 0,
  BALLAST_SPLIT_VALID = 1,
  BALLAST_SPLIT_TEST = 2
} ballast_split;

/* Value of `steps`. */
#define BALLAST_ONE_PASS UINT64_MAX

typedef struct ballast_shim_options {
  uint32_t struct_size;
  /* ballast_module. Required. */
  int32_t module;
  /* The rank's place in its module's layout: data, tensor, pipeline and context
   * parallel. */
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
  /* This rank's end of its module's group, of the same backend. The call takes
   * it over, even if it fails: do not use or destroy it afterwards.
   * BACKEND_HOST: if NULL, the servers deliver to this rank as under
   * balance.delivery: direct, which gives the same batches; it must then be
   * NULL on all ranks of the module. */
  ballast_communicator* communicator;
  /* BALLAST_FLOAT32 or BALLAST_BFLOAT16. 0: FLOAT32 with BACKEND_HOST, BFLOAT16
   * with BACKEND_CUDA. */
  int32_t pixel_type;
  /* ballast_normalisation. */
  int32_t normalisation;
  /* First step. Must be 0 with a checkpoint, which gives it. */
  uint64_t start_step;
  /* Number of steps. 0: until the data end. BALLAST_ONE_PASS: all samples of
   * `valid` or `test` once; of the last steps, samples at or after the position
   * "repeats_from" of their source (ballast_shim_job, "one_pass") have occurred
   * before. */
  uint64_t steps;
  /* The result of ballast_shim_checkpoint. The run resumes at exactly the next
   * position, also with other dp sizes, another micro-batch, delivery, balance
   * or packing, or other servers, as long as the data are the same. NULL: none.
   */
  const void* checkpoint;
  uint64_t checkpoint_size; /* bytes */
  /* The job must have this fingerprint: 32 hexadecimal digits. NULL or "": any.
   */
  const char* fingerprint;
  /* Bytes of blocks that may be held or in flight; one block is always allowed,
   * however large. 0: 256 MiB. */
  uint64_t max_bytes;
  /* BACKEND_CUDA. 1: ballast_shim_next makes only the batch that it returns. 0:
   * it also enqueues the device work of the batch after it, which then overlaps
   * the trainer's step. */
  uint32_t no_overlap;
  uint32_t reserved;
  /* BACKEND_CUDA: seconds after which unfinished device work counts as hung,
   * because a peer is gone or far behind. 0: 600. */
  double timeout_s;
  /* This rank's end of the group of its tensor peers, of the same backend,
   * taken over like `communicator`: tensor rank 0 then pulls for all (see
   * ballast_shim_send_to_tensor_peers). NULL: each tensor rank pulls for
   * itself. */
  ballast_communicator* tensor_communicator;
  /* 1: a language rank receives these at any pipeline stage. Multi-token
   * prediction (MTP) needs them. */
  uint32_t needs_input_ids;
  uint32_t needs_labels;
  /* Batches that may be held at a time, at most 65536. 0: enough for a 1F1B
   * pipeline of the job's deepest module, its number of stages + 2, and at
   * least 4. A batch's memory is allocated when first needed and then reused,
   * for no more than these batches plus, with BACKEND_CUDA and overlap, the one
   * made ahead. */
  uint32_t max_batches_held;
  uint32_t reserved2;
  /* ballast_split. Shims of several splits may be open at the same time; each
   * needs separate communicators. */
  int32_t split;
  uint32_t reserved3;
} ballast_shim_options;

/* Attaches to the servers and begins to fetch, in the shim's own threads.
 * Blocks until every server has answered or failed. With BACKEND_CUDA, create
 * all shims of a process before the first ballast_shim_next of any
 * (docs/gpu_shim.md). No call changes the calling thread's current device.
 * Errors: INVALID_ARGUMENT (naming the option; the job has no such split),
 * FAILED_PRECONDITION (fingerprints differ, the data are not the checkpoint's,
 * no GPU), UNIMPLEMENTED (a library without CUDA), UNAVAILABLE and
 * DEADLINE_EXCEEDED (no server answers; names each with its cause),
 * UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED, INTERNAL. */
BALLAST_API int ballast_shim_create(const ballast_shim_options* options,
                                    ballast_shim** shim);

/* Stops and frees the shim. Other ranks that still exchange with this one end
 * with an error unless all steps are done. Held batches stay valid until
 * released. No other thread may be in a call of this shim. May wait for the
 * device and, over NCCL once all steps are done, for the group's other ranks on
 * this machine to do the same. */
BALLAST_API void ballast_shim_destroy(ballast_shim* shim);

/* Returns the batch of the next micro-batch, in order of (step, micro-batch),
 * with one reference, which the caller gives back with ballast_batch_release.
 * Call it always from the same thread. Held batches are never touched.
 *
 * BACKEND_HOST: `stream` must be NULL. Blocks until the batch is in host
 * memory. If samples are exchanged, all ranks of the module must call.
 *
 * BACKEND_CUDA: `stream` is a cudaStream_t of the shim's device (NULL: the
 * default stream; cudaStreamPerThread is not allowed). It waits until the batch
 * is packed. The calling thread waits only for blocks from the servers and,
 * before OUT_OF_RANGE, until the device has the last batch. Work on other
 * streams that reads the batch must wait for `stream`, and those streams must
 * be named with ballast_batch_record_stream. With several shims on one device
 * (vision and language), call them from one thread, in the same order in every
 * process.
 *
 * RESOURCE_EXHAUSTED: max_batches_held batches are held. Returned at once,
 * before anything is pulled or exchanged; the message names each by step,
 * micro-batch and references. The shim stays usable: after a release, the call
 * returns the same batch. (If it returns RESOURCE_EXHAUSTED again after a
 * release, the job has run out of memory, and the error is final.)
 *
 * Every other error is final, repeated at every further call, and ends the
 * other ranks of the module too. OUT_OF_RANGE: all steps are done, or the data
 * have ended. DATA_LOSS (a block, schedule or sample is not what it should be;
 * a peer follows another schedule), UNAVAILABLE (no server answers, or a peer
 * left), DEADLINE_EXCEEDED (timeout_s; no server answers in time), CANCELLED,
 * RESOURCE_EXHAUSTED (no memory), INVALID_ARGUMENT, FAILED_PRECONDITION,
 * INTERNAL. Messages name the rank. BACKEND_CUDA: an error on the device is
 * returned by the next call. A rejected argument is not final and changes
 * nothing. */
BALLAST_API int ballast_shim_next(ballast_shim* shim, void* stream,
                                  const ballast_batch** batch);

/* With a tensor_communicator, tensor rank 0 calls ballast_shim_next and then
 * ballast_shim_send_to_tensor_peers, once for each batch and before it requests
 * the next. The other tensor ranks call ballast_shim_receive_from_tensor_peer
 * instead of ballast_shim_next. All call at the same place among their
 * collectives. Streams, references, blocking and errors: as ballast_shim_next.
 * A rank that receives pulls no block. On rank 0 the shim holds its own
 * reference to the batch between the two calls. FAILED_PRECONDITION leaves the
 * shim usable: the call is for other ranks, or there is no batch to send. */
BALLAST_API int ballast_shim_send_to_tensor_peers(ballast_shim* shim,
                                                  void* stream);
BALLAST_API int ballast_shim_receive_from_tensor_peer(
    ballast_shim* shim, void* stream, const ballast_batch** batch);

/* Number of the shim's batches that are held. From any thread, also during
 * other calls except _destroy. */
BALLAST_API int ballast_shim_batches_held(const ballast_shim* shim,
                                          uint32_t* held);

/* Returns the number of micro-batches of `step`, the same on every rank, for a
 * pipeline schedule that must know it before the step's first batch. With
 * packing.mode `scheduled` it differs from step to step. Takes no batch. `step`
 * may be any step. Blocks only if the shim has not fetched the step's schedule
 * yet, at most as long as ballast_shim_next waits for servers. From any thread,
 * also during other calls except _destroy. Errors leave the shim usable:
 * OUT_OF_RANGE (the step is not before the end of the steps or of the data),
 * UNAVAILABLE, DEADLINE_EXCEEDED, DATA_LOSS (the server's configuration has
 * changed), CANCELLED. */
BALLAST_API int ballast_shim_num_micro_batches(ballast_shim* shim,
                                               uint64_t step, uint32_t* number);

/* Ends blocked calls of this shim, here and on the module's other ranks, and
 * all later ones, with CANCELLED. From any thread, also during other calls
 * except _destroy. */
BALLAST_API int ballast_shim_cancel(ballast_shim* shim);

/* Reports to the servers how long forward and backward of one of this rank's
 * micro-batches took, for `ballastctl fit-cost`, and how long the shim waited
 * for it, copied, exchanged and packed it, for their metrics (docs/metrics.md).
 * From any thread, also during other calls except _destroy. Blocks for a round
 * trip, plus a second for each server that hangs. Errors leave the shim usable
 * and may be ignored. INVALID_ARGUMENT: a shim of another split than train. */
BALLAST_API int ballast_shim_report_timing(ballast_shim* shim, uint64_t step,
                                           uint32_t micro_batch,
                                           double milliseconds);

/* The job, as one JSON object: "fingerprint", "data_fingerprint", and the
 * fields of ballast.v1.Job under their names in proto/job.proto: "modules" (a
 * list of {"module": "vision", "dp", "align", ...}), "global_batch",
 * "micro_batch", "delivery", "model" ({"patch", "merge", "temporal_patch",
 * "mean", "std", "token_ids", "position_axes", ...}), "split", "splits" (the
 * splits that have sources), "end_step", "steps_per_epoch", "one_pass" and
 * "step_ranges" (the steps of other sizes than "global_batch") of the shim's
 * split.
 * Enumeration values are in lower case, as in the configuration. */
BALLAST_API int ballast_shim_job(const ballast_shim* shim, ballast_bytes** job);

/* The schedule of the last batch's step, in the JSON of `ballastctl schedule
 * --json`. Errors: FAILED_PRECONDITION (there is no batch). */
BALLAST_API int ballast_shim_schedule(const ballast_shim* shim,
                                      ballast_bytes** schedule);

/* Value of `next_step` for the step after the last one whose batches have all
 * been returned. */
#define BALLAST_AFTER_LAST_STEP UINT64_MAX

/* Creates a checkpoint of the split's data for a run that resumes at
 * `next_step`. It is the same on all ranks: a few kilobytes that hold only that
 * step and the fingerprint. */
BALLAST_API int ballast_shim_checkpoint(const ballast_shim* shim,
                                        uint64_t next_step,
                                        ballast_bytes** checkpoint);

/* The contents of a checkpoint. */
typedef struct ballast_checkpoint_info {
  uint32_t struct_size;
  /* ballast_split. */
  int32_t split;
  uint64_t next_step;
  /* Fingerprints of the whole job and of its data alone: 32 hexadecimal digits
   * and a 0. */
  char fingerprint[40];
  char data_fingerprint[40];
} ballast_checkpoint_info;

/* Reads a checkpoint. Errors: DATA_LOSS (damaged or truncated),
 * INVALID_ARGUMENT (not a checkpoint), UNIMPLEMENTED (a later version). */
BALLAST_API int ballast_checkpoint_read(const void* checkpoint, size_t size,
                                        ballast_checkpoint_info* info);

/* ---- Embeddings
 *
 * On their way from an encoder, of images or audio, to the language model, with
 * balance.placement `split`.
 *
 * These calls are for `topology.colocated: true`, where a process has a shim of
 * each module. With modules on separate ranks they are refused: a trainer moves
 * the rows over its own communicator, by embedding_send_host of the
 * encoder's batch, and embedding_receive_host and embedding_order of the
 * language batch (docs/thd_format.md; of audio audio_embedding_send_host …).
 * They are refused, too, where ranks share packs (packing.dynamic_cp), whose
 * rows go to several ranks by embedding_send_order.
 *
 * In every micro-batch the process takes a batch from each shim, and for each
 * encoder, such as vision:
 *
 *   run_tower(vision_batch, tower);
 *   ballast_embedding_rows rows = {sizeof(rows)};
 *   rows.dtype = BALLAST_BFLOAT16;
 *   rows.width = 3584;
 *   rows.tower = tower;
 *   rows.tower_rows = image tokens of vision_batch, and the dummy's;
 *   rows.text = text;
 *   rows.text_rows = image placeholders of language_batch;
 *   ballast_shim_exchange_embeddings(vision, vision_batch, &rows, stream);
 *   run_language_model(language_batch, text);
 *   ... the backward pass fills `text` with the gradients of its rows:
 *   ballast_shim_return_gradients(vision, vision_batch, &rows, stream);
 *   ... and `tower` now has the gradients of the tower's output.
 */

/* The embeddings of one micro-batch on one rank, or their gradients: two dense,
 * row-major arrays that do not overlap, in the memory of the shim's backend.
 * The library keeps neither. */
typedef struct ballast_embedding_rows {
  uint32_t struct_size;
  /* BALLAST_BFLOAT16, BALLAST_FLOAT16, BALLAST_FLOAT32 or BALLAST_FLOAT64; the
   * same on all ranks, as is `width`. Values are moved, never converted. */
  int32_t dtype;
  /* Elements of a row. At least 1. Where a tower gives several rows for a token
   * (Qwen3-VL's deepstack), put them side by side in one. */
  uint64_t width;
  /* [tower_rows, width]: a row for each token of this rank's images, or audio,
   * in the order of the encoder's batch, of a sample with images and videos
   * the images' first; the rows that the encoder makes of a dummy
   * (ballast_batch_info.dummy_image), at least one, last. Without them,
   * tower_rows is the sum of embedding_send_host. May be NULL if tower_rows is
   * 0. */
  void* tower;
  uint64_t tower_rows;
  /* [text_rows, width]: a row for each placeholder of the encoder's in this
   * rank's text, in its order, of a sample with images and videos the images'
   * first; with context parallelism in the whole samples.
   * As many as embedding_order has. May be NULL if text_rows is 0. */
  void* text;
  uint64_t text_rows;
} ballast_embedding_rows;

/* Moves embeddings to the ranks that train on their text: reads `tower` and
 * fills `text`. One all-to-all, whose sizes all ranks know. A dummy's rows are
 * left out. With placement `paired` the rows are copied from one array
 * to the other.
 *
 * `shim` is of the encoder and `batch` one of its batches. The exchange goes
 * over the shim's communicator, which it needs whatever balance.delivery is,
 * unless there is one data-parallel rank. Every data-parallel rank makes this
 * call for every micro-batch, also without a row to move, at the same place
 * among its calls of ballast_shim_next, and from the same thread.
 *
 * BACKEND_HOST: `stream` must be NULL. Blocks until `text` is filled.
 * BACKEND_CUDA: enqueues the work on `stream`, a stream of the shim's device,
 * and waits for nothing: later work on `stream` may read `text`. Both arrays
 * must stay valid until then. To overlap the look-up of the text's embeddings,
 * give a separate stream. An exchange that is not done after
 * ballast_shim_options.timeout_s ends the shim with DEADLINE_EXCEEDED, because
 * a peer is gone.
 *
 * Errors. INVALID_ARGUMENT (numbers of rows that are not the batch's, a batch
 * of language, a type or memory that cannot be) and FAILED_PRECONDITION (no
 * communicator; modules on separate ranks) change nothing on this rank, but
 * the others wait for it: call ballast_shim_cancel. Every other error is final,
 * as in ballast_shim_next: UNAVAILABLE (a peer left), CANCELLED,
 * INVALID_ARGUMENT (peers whose rows have another width), INTERNAL. */
BALLAST_API int ballast_shim_exchange_embeddings(
    struct ballast_shim* shim, const ballast_batch* batch,
    const ballast_embedding_rows* rows, void* stream);

/* The reverse, for the backward pass: reads the gradients in `text` and fills
 * `tower`. A dummy's rows become 0, so that the tower's backward pass, with its
 * collectives, runs on this rank too. All else as
 * ballast_shim_exchange_embeddings. The batch must still be held. */
BALLAST_API int ballast_shim_return_gradients(
    struct ballast_shim* shim, const ballast_batch* batch,
    const ballast_embedding_rows* rows, void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_H_ */
