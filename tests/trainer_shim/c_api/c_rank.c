#include "tests/trainer_shim/c_api/c_rank.h"

int c_rank_run(const ballast_shim_options* options, void* stream,
               c_rank_on_batch on_batch, void* context) {
  ballast_shim* shim = NULL;
  const ballast_batch* batch = NULL;
  int status = ballast_shim_create(options, &shim);
  while (status == BALLAST_OK) {
    status = ballast_shim_next(shim, stream, &batch);
    if (status != BALLAST_OK) break;
    on_batch(context, batch);
    ballast_batch_release(batch);
  }
  ballast_shim_destroy(shim);
  return status;
}
