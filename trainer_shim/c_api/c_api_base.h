#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_

/* Part of the C interface (c_api.h has the rules): status and errors, the
 * library's version and backends, bytes, the servers' addresses, and groups of
 * ranks that exchange samples or batches. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BALLAST_API __attribute__((visibility("default")))

/* The version of the interface in this header. */
#define BALLAST_ABI_VERSION 1

/* BALLAST_ABI_VERSION of the loaded library. A program should refuse any
 * version other than the one it was compiled for. */
BALLAST_API uint32_t ballast_abi_version(void);
/* The library's version, such as "1.2.3". Static string. */
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

/* Name of a status, such as "INVALID_ARGUMENT" for 3; "UNKNOWN" for any other
 * number. Static string. */
BALLAST_API const char* ballast_status_name(int status);

/* Message of this thread's last failed call; "" before the first. One line of
 * UTF-8. Valid until the thread's next failed call. */
BALLAST_API const char* ballast_last_error(void);

typedef enum ballast_module {
  BALLAST_MODULE_VISION = 1,
  BALLAST_MODULE_LANGUAGE = 2,
  BALLAST_MODULE_AUDIO = 3
} ballast_module;

/* The memory that batches are made in. */
typedef enum ballast_backend {
  BALLAST_BACKEND_HOST = 1,
  BALLAST_BACKEND_CUDA = 2
} ballast_backend;

/* 1 if the library was built with this backend, else 0. Does not check for the
 * GPU and the driver that BACKEND_CUDA also needs. */
BALLAST_API int ballast_has_backend(int backend);

/* Bytes that the library allocated, for the caller to free. */
typedef struct ballast_bytes ballast_bytes;
/* Data and size. The data are followed by a 0 byte that is not counted, so that
 * text is a C string. Valid until freed. For NULL: NULL and 0. */
BALLAST_API const char* ballast_bytes_data(const ballast_bytes* bytes);
BALLAST_API size_t ballast_bytes_size(const ballast_bytes* bytes);
BALLAST_API void ballast_bytes_free(ballast_bytes* bytes);

/* Types of elements; also of ballast_shim_options.pixel_type. */
typedef enum ballast_dtype {
  BALLAST_UINT8 = 1,
  BALLAST_INT32 = 2,
  BALLAST_INT64 = 3,
  BALLAST_FLOAT32 = 4,
  BALLAST_BFLOAT16 = 5,
  BALLAST_BOOL = 6, /* a byte, 0 or 1 */
  /* Only in ballast_embedding_rows. */
  BALLAST_FLOAT16 = 7,
  BALLAST_FLOAT64 = 8
} ballast_dtype;

/* The job's servers: their addresses, and how both sides authenticate each
 * other. */
typedef struct ballast_connection {
  uint32_t struct_size;
  /* Number of `servers`; at least 1. */
  uint32_t num_servers;
  /* Addresses, `unix:/path` or `host:port`, in order of preference. The rank
   * attaches to all that answer, and they must have one fingerprint. Blocks
   * come from the first server, and from the next when it dies, hangs, drains
   * or is too slow. */
  const char* const* servers;
  /* File names. NULL or "": none. TCP uses TLS if tls_ca (PEM, the CAs of the
   * servers' certificates) is given; the other tls_ fields require it. */
  const char* tls_ca;
  const char* tls_cert; /* PEM, of this client; with tls_key */
  const char* tls_key;
  const char* tls_server_name; /* name in the certificates, where it is not the
                                  address's */
  const char* token_file;      /* its first line is the bearer token */
  /* Seconds to wait at the start for the first server to answer. 0: 60.
   * Negative: it must answer at once. */
  double wait_for_server_s;
  /* Seconds without a byte from a server that may send, after which the next
   * server takes over; four times that for a whole block. 0: 30. */
  double hang_after_s;
  /* Seconds without anything from any server, after which ballast_shim_next
   * fails. 0: 300. */
  double give_up_after_s;
  /* Number of connections, at most 8, that carry blocks outside shared memory;
   * docs/flow_control.md says how to choose. 0: 1. */
  uint32_t streams;
  uint32_t reserved;
  /* Name of this start of the job, the same on all its ranks; for example a
   * launcher's job number and restart count. Ranks of different runs never meet
   * in a group. NULL or "": no name. At most 256 bytes. */
  const char* run;
  /* Network interface, or this machine's address, at which a rank with
   * BACKEND_HOST exchanges with other processes. NULL or "": the interface with
   * the route to the first server on another machine, or 127.0.0.1. */
  const char* exchange_interface;
  /* Servers, at most 64, that make a rank's blocks at once, each its share: of
   * those at `servers`, where a name is a server at each address that it
   * resolves to, now or while the rank runs; docs/loaders.md. 0: one server
   * makes all, as `servers` says. */
  uint32_t spread;
  uint32_t reserved2;
} ballast_connection;

/* Asks the servers for the job before there is a shim, for example to learn how
 * many ranks each module has. The first server that answers counts. `job`: as
 * from ballast_shim_job. Blocks until a server has answered. Errors:
 * INVALID_ARGUMENT, UNAVAILABLE, DEADLINE_EXCEEDED, UNAUTHENTICATED,
 * PERMISSION_DENIED, FAILED_PRECONDITION (the servers differ in fingerprint).
 */
BALLAST_API int ballast_query_job(const ballast_connection* connection,
                                  ballast_bytes** job);

/* ---- Groups of ranks */

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
   * rest stay free for the trainer's kernels. 0: so many that NCCL's buffers
   * take at most 252 MiB for up to 21 peers, from 1 to 8. */
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
 * ever aborts the split one, and splitShare of the original must be 0, NCCL's
 * default. The wait for the other ranks is bounded, by 5 minutes in each of two
 * steps, but in the first only if the original is non-blocking. */
BALLAST_API int ballast_communicator_nccl_borrow(
    void* nccl_comm, const ballast_nccl_options* options,
    ballast_communicator** communicator);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_ */
