#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_COMMUNICATOR_H_

/* Part of the C interface (c_api.h has the rules): groups of ranks that
 * exchange samples or batches. */

#include "trainer_shim/c_api/c_api_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's end of a group of ranks that exchange samples or batches. A shim
 * takes it over. There are two kinds of groups:
 * - the data-parallel ranks of a module at one place of its layout (same
 *   tensor, pipeline and context rank), ranked by dp_rank. Needed if the job's
 *   delivery is `exchange` or `hybrid` and the module has more than one such
 *   rank that receives any tensor;
 * - the tensor ranks that share a data-parallel, pipeline and context rank,
 *   ranked by tp_rank. Needed if one tensor rank pulls for all. */
typedef struct ballast_communicator ballast_communicator;

/* Leaves the group: the other ranks' exchanges end with UNAVAILABLE. Only for
 * an end that has not been given to a shim. */
BALLAST_API void ballast_communicator_destroy(
    ballast_communicator* communicator);

/* Creates a group whose ranks are threads of this process: `ends[r]` becomes
 * rank r's end, for `size` ranks. With BACKEND_CUDA it serves threads that
 * share a GPU or whose GPUs reach each other's memory (for tests: NCCL refuses
 * two ranks on one GPU). Each rank's ballast_shim_next waits for the other
 * ranks' calls, so each rank needs its own thread. Errors: INVALID_ARGUMENT
 * (size 0 or above 65,536, no such backend), UNIMPLEMENTED (a library without
 * CUDA). */
BALLAST_API int ballast_communicator_in_process(int backend, uint32_t size,
                                                ballast_communicator** ends);

/* Joins a group for BACKEND_HOST whose ranks are processes, on one or more
 * machines. They meet through the first server of `connection` that serves, and
 * exchange over Gloo, whose TCP connections are neither encrypted nor
 * authenticated. Ranks may use different servers. `group` names the group, such
 * as "language", in at most 200 bytes, and is unique in the job. Ranks with
 * another `connection->run` do not meet. Blocks until all ranks have met and
 * connected, at most `timeout_s` seconds (0: 300) and a minute for each further
 * wait. Exchanges wait for a rank twice as long as connection->give_up_after_s,
 * and for a machine that is silent as long as connection->hang_after_s. Errors:
 * DEADLINE_EXCEEDED (not all ranks came), UNAVAILABLE (a rank left, or its
 * address cannot be reached), FAILED_PRECONDITION (a stranger answers in a
 * rank's place), INVALID_ARGUMENT (more than 2000 ranks; no such interface),
 * and as ballast_query_job. */
BALLAST_API int ballast_communicator_gloo_meet(
    const ballast_connection* connection, const char* group, uint32_t rank,
    uint32_t size, double timeout_s, ballast_communicator** communicator);

/* Options of a communicator over NCCL. NCCL is the copy that the process has
 * already loaded (PyTorch's, for example), otherwise the system's libnccl.so.2.
 */
typedef struct ballast_nccl_options {
  uint32_t struct_size;
  /* CUDA device of this rank; no two ranks of a group may share one. */
  int32_t device;
  /* Limit of thread blocks (CTAs) that an exchange takes from the device; the
   * rest stay free for the trainer's kernels. 0: NCCL decides. */
  uint32_t max_ctas;
  uint32_t reserved;
} ballast_nccl_options;

/* Bytes of an ncclUniqueId. */
#define BALLAST_NCCL_ID_BYTES 128

/* Creates the id of a new group in `id`, the caller's BALLAST_NCCL_ID_BYTES
 * bytes. One rank of the group calls this and hands the id to the others in its
 * own way. Errors: UNIMPLEMENTED (a library without CUDA), FAILED_PRECONDITION
 * (no NCCL, or one before 2.18), INTERNAL (NCCL's own). */
BALLAST_API int ballast_nccl_id(void* id);

/* Joins the group with that id as rank `rank` of `size`. This and the next two
 * functions block until all ranks of the group have called them. This one gives
 * up after 5 minutes in each of two steps. Errors: as ballast_nccl_id;
 * DEADLINE_EXCEEDED (not all ranks came); INVALID_ARGUMENT; FAILED_PRECONDITION
 * and INTERNAL (from CUDA). */
BALLAST_API int ballast_communicator_nccl(const void* id, uint32_t rank,
                                          uint32_t size,
                                          const ballast_nccl_options* options,
                                          ballast_communicator** communicator);

/* Joins a group through the first server of `connection` that serves, without
 * MPI and without an address; ranks may use different servers. `group` names
 * the group, such as "language", and is unique in the job. Ranks with another
 * `connection->run` do not meet. Further errors: DEADLINE_EXCEEDED (not all
 * ranks came within `timeout_s` seconds, or did not connect within as long
 * again in each of two steps; 0: 300), and as ballast_query_job. */
BALLAST_API int ballast_communicator_nccl_meet(
    const ballast_connection* connection, const char* group, uint32_t rank,
    uint32_t size, double timeout_s, const ballast_nccl_options* options,
    ballast_communicator** communicator);

/* Splits a communicator of the same ranks off the trainer's own, an ncclComm_t
 * of the NCCL described above. The original stays the trainer's: the shim only
 * ever aborts the split one. The wait for the other ranks is bounded, by 5
 * minutes, only if the original is non-blocking. */
BALLAST_API int ballast_communicator_nccl_borrow(
    void* nccl_comm, const ballast_nccl_options* options,
    ballast_communicator** communicator);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_COMMUNICATOR_H_ */
