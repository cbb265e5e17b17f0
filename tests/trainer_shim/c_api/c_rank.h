#ifndef BALLAST_TESTS_TRAINER_SHIM_C_API_C_RANK_H_
#define BALLAST_TESTS_TRAINER_SHIM_C_API_C_RANK_H_

#include "trainer_shim/c_api/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called with every batch of a rank, which it may read until it returns. */
typedef void (*c_rank_on_batch)(void* context, const ballast_batch* batch);

/* Runs a rank to its end, in C. Returns the status that ended it:
 * BALLAST_OUT_OF_RANGE if all steps are done. */
int c_rank_run(const ballast_shim_options* options, void* stream,
               c_rank_on_batch on_batch, void* context);

#ifdef __cplusplus
}
#endif

#endif /* BALLAST_TESTS_TRAINER_SHIM_C_API_C_RANK_H_ */
