#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_

/* Part of the C interface (c_api.h has the rules): status and errors, the
 * library itself, bytes, and where the servers are. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BALLAST_API __attribute__((visibility("default")))

/* The version of the interface in this header. */
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

/* The memory that batches are made in. */
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

/* Types of elements; also those of ballast_shim_options.pixel_type. */
typedef enum ballast_dtype {
  BALLAST_UINT8 = 1,
  BALLAST_INT32 = 2,
  BALLAST_INT64 = 3,
  BALLAST_FLOAT32 = 4,
  BALLAST_BFLOAT16 = 5,
  BALLAST_BOOL = 6 /* a byte, 0 or 1 */
} ballast_dtype;

/* The job's servers: their addresses, and how both sides know each other. */
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
  const char* tls_server_name; /* name in the certificates, where it is not the
                                  address's */
  const char* token_file;      /* its first line is the bearer token */
  /* Seconds to wait at the start for the first server to answer. 0: 60;
   * negative: it must answer at once. */
  double wait_for_server_s;
  /* Seconds without a byte from a server that may send, then the next one goes
   * on; four times that for a whole block. 0: 30. */
  double hang_after_s;
  /* Seconds without anything from any server, then Next fails. 0: 300. */
  double give_up_after_s;
  /* Over how many connections, at most 8, blocks come that are not in shared
   * memory; docs/flow_control.md says how to choose. 0: 1. */
  uint32_t streams;
  uint32_t reserved;
  /* Names this start of the job, the same for all its ranks: a launcher's job
   * number and restart count, say. Ranks of different runs never meet in a
   * group. NULL or "": none is named. At most 256 bytes. */
  const char* run;
} ballast_connection;

/* Asks the job's first server that answers what the job is, before there is a
 * shim: to learn how many ranks each module has, say. `job`: as
 * ballast_shim_job answers. Blocks until a server has answered.
 * Errors: INVALID_ARGUMENT, UNAVAILABLE, DEADLINE_EXCEEDED, UNAUTHENTICATED,
 * PERMISSION_DENIED, FAILED_PRECONDITION (the servers differ in fingerprint).
 */
BALLAST_API int ballast_query_job(const ballast_connection* connection,
                                  ballast_bytes** job);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_ */
