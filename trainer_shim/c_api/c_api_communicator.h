#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_COMMUNICATOR_H_

/* Part of the C interface (c_api.h has the rules): the groups of ranks that
 * send each other samples. */

#include "trainer_shim/c_api/c_api_base.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* The same, met through the first server of `connection`: no MPI, no address;
 * the servers bring ranks that ask different ones together. `group` names the
 * ranks that meet, in the whole job: "language", say; ranks whose
 * `connection->run` differs do not meet. After `timeout_s` seconds (0: 300)
 * without all of them: DEADLINE_EXCEEDED. Errors of the server too, as
 * ballast_query_job. */
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_COMMUNICATOR_H_ */
