#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_EMBEDDINGS_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_EMBEDDINGS_H_

/* Part of the C interface (c_api.h has the rules): embeddings on their way from
 * an encoder, of images or audio, to the language model, with balance.placement
 * `split`.
 *
 * These calls are for `topology.colocated: true`, where a process has a shim of
 * each module. With modules on ranks of their own they are refused: a trainer
 * moves the rows over a communicator of its own, by embedding_send_host of the
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

#include "trainer_shim/c_api/c_api_base.h"
#include "trainer_shim/c_api/c_api_batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ballast_shim;

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
  /* [tower_rows, width]: a row for each token of this rank's images, or clips,
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
 * communicator; modules on ranks of their own) change nothing on this rank, but
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

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_EMBEDDINGS_H_ */
