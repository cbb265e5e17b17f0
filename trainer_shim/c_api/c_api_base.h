#ifndef BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_
#define BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_

/* Part of the C interface (c_api.h has the rules): status and errors, the
 * library's version and backends, bytes, and the servers' addresses. */

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
} ballast_connection;

/* Asks the servers for the job before there is a shim, for example to learn how
 * many ranks each module has. The first server that answers counts. `job`: as
 * from ballast_shim_job. Blocks until a server has answered. Errors:
 * INVALID_ARGUMENT, UNAVAILABLE, DEADLINE_EXCEEDED, UNAUTHENTICATED,
 * PERMISSION_DENIED, FAILED_PRECONDITION (the servers differ in fingerprint).
 */
BALLAST_API int ballast_query_job(const ballast_connection* connection,
                                  ballast_bytes** job);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BALLAST_TRAINER_SHIM_C_API_C_API_BASE_H_ */
