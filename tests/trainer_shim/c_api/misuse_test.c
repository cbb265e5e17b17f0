/* Wrong calls of the C interface and their errors; compiled as C11. */

#include <stdio.h>
#include <string.h>

#include "trainer_shim/c_api/c_api.h"

static int failures = 0;

/* Expects `status` to be `want` and the message to contain `text`. */
static void expect(int line, int status, int want, const char* text) {
  const char* said = status == BALLAST_OK ? "" : ballast_last_error();
  if (status == want && strstr(said, text) != NULL) return;
  printf("line %d: %s \"%s\", wanted %s with \"%s\"\n", line,
         ballast_status_name(status), said, ballast_status_name(want), text);
  ++failures;
}
#define EXPECT(call, want, text) expect(__LINE__, call, want, text)
#define EXPECT_TRUE(condition) \
  expect(__LINE__, (condition) ? BALLAST_OK : BALLAST_UNKNOWN, BALLAST_OK, "")

static const char* const kServers[] = {"unix:/nowhere/ballast.sock"};

static ballast_connection Connection(void) {
  ballast_connection connection = {.struct_size = sizeof(connection)};
  connection.num_servers = 1;
  connection.servers = kServers;
  connection.wait_for_server_s = -1; /* nobody comes */
  return connection;
}

static void TestNull(void) {
  ballast_shim* shim = NULL;
  const ballast_batch* batch = NULL;
  ballast_bytes* bytes = NULL;
  ballast_batch_info info = {.struct_size = sizeof(info)};
  ballast_checkpoint_info checkpoint = {.struct_size = sizeof(checkpoint)};
  ballast_shim_options options = {.struct_size = sizeof(options)};
  char digest[33];
  const int invalid = BALLAST_INVALID_ARGUMENT;
  EXPECT(ballast_shim_create(NULL, &shim), invalid, "options is NULL");
  EXPECT(ballast_shim_create(&options, NULL), invalid, "shim is NULL");
  EXPECT(ballast_shim_next(NULL, NULL, &batch), invalid, "shim is NULL");
  EXPECT(ballast_shim_send_to_tensor_peers(NULL, NULL), invalid,
         "shim is NULL");
  EXPECT(ballast_shim_receive_from_tensor_peer(NULL, NULL, &batch), invalid,
         "shim is NULL");
  EXPECT(ballast_shim_num_micro_batches(NULL, 0, NULL), invalid,
         "shim is NULL");
  EXPECT(ballast_shim_cancel(NULL), invalid, "shim is NULL");
  EXPECT(ballast_shim_report_timing(NULL, 0, 0, 1), invalid, "shim is NULL");
  EXPECT(ballast_shim_job(NULL, &bytes), invalid, "shim is NULL");
  EXPECT(ballast_shim_schedule(NULL, &bytes), invalid, "shim is NULL");
  EXPECT(ballast_shim_checkpoint(NULL, 0, &bytes), invalid, "shim is NULL");
  EXPECT(ballast_query_job(NULL, &bytes), invalid, "connection is NULL");
  EXPECT(ballast_query_job(NULL, NULL), invalid, "job is NULL");
  EXPECT(ballast_batch_get_info(NULL, &info), invalid, "batch is NULL");
  EXPECT(ballast_batch_get_tensor(NULL, 0, NULL), invalid, "batch is NULL");
  EXPECT(ballast_batch_find_tensor(NULL, "labels", NULL), invalid,
         "batch is NULL");
  EXPECT(ballast_tensor_table(NULL), invalid, "table is NULL");
  EXPECT(ballast_batch_get_sample(NULL, 0, NULL), invalid, "batch is NULL");
  EXPECT(ballast_batch_get_totals(NULL, 0, NULL), invalid, "batch is NULL");
  EXPECT(ballast_batch_digest(NULL, NULL, digest), invalid, "batch is NULL");
  EXPECT(ballast_batch_record_stream(NULL, NULL), invalid, "batch is NULL");
  EXPECT(ballast_shim_batches_held(NULL, NULL), invalid, "shim is NULL");
  EXPECT(ballast_checkpoint_read(NULL, 9, &checkpoint), invalid,
         "checkpoint is NULL");
  EXPECT(ballast_checkpoint_read("nothing", 7, &checkpoint), invalid,
         "no checkpoint");
  EXPECT(ballast_communicator_in_process(BALLAST_BACKEND_HOST, 1, NULL),
         invalid, "ends is NULL");
  EXPECT(ballast_nccl_id(NULL), invalid, "id is NULL");
  ballast_batch_retain(NULL);
  ballast_batch_release(NULL);
  ballast_shim_destroy(NULL);
  ballast_communicator_destroy(NULL);
  ballast_bytes_free(NULL);
  EXPECT_TRUE(ballast_bytes_data(NULL) == NULL);
  EXPECT_TRUE(ballast_bytes_size(NULL) == 0);
  EXPECT_TRUE(shim == NULL && batch == NULL && bytes == NULL);
}

static void TestOptions(void) {
  const ballast_connection connection = Connection();
  const ballast_shim_options good = {.struct_size = sizeof(good),
                                     .module = BALLAST_MODULE_VISION,
                                     .connection = &connection};
  ballast_shim_options options;
  ballast_shim* shim = NULL;
#define WITH(field, value, status, text) \
  options = good;                        \
  options.field = value;                 \
  EXPECT(ballast_shim_create(&options, &shim), status, text)

  WITH(module, 4, BALLAST_INVALID_ARGUMENT, "options.module is 4");
  WITH(backend, 7, BALLAST_INVALID_ARGUMENT, "backend is 7");
  WITH(device, 1, BALLAST_INVALID_ARGUMENT, "options.device is 1");
  WITH(device, -1, BALLAST_INVALID_ARGUMENT, "options.device is -1");
  WITH(pixel_type, BALLAST_UINT8, BALLAST_INVALID_ARGUMENT, "pixel_type is 1");
  WITH(normalisation, 3, BALLAST_INVALID_ARGUMENT, "normalisation is 3");
  WITH(checkpoint_size, 4, BALLAST_INVALID_ARGUMENT, "checkpoint_size is 4");
  WITH(max_batches_held, 65537, BALLAST_INVALID_ARGUMENT,
       "options.max_batches_held is 65537");
  WITH(timeout_s, -1, BALLAST_INVALID_ARGUMENT, "options.timeout_s is -1");
  WITH(connection, NULL, BALLAST_INVALID_ARGUMENT, "connection is NULL");
  /* Valid options, but no server answers: "no server" names the address. */
  EXPECT(ballast_shim_create(&good, &shim), BALLAST_UNAVAILABLE,
         "/nowhere/ballast.sock");
  EXPECT_TRUE(shim == NULL);

  ballast_connection bad = Connection();
  ballast_bytes* job = NULL;
  bad.num_servers = 0;
  EXPECT(ballast_query_job(&bad, &job), BALLAST_INVALID_ARGUMENT,
         "connection.num_servers is 0");
  bad = Connection();
  bad.servers = NULL;
  EXPECT(ballast_query_job(&bad, &job), BALLAST_INVALID_ARGUMENT,
         "connection.servers is NULL");
  bad = Connection();
  bad.hang_after_s = -2;
  EXPECT(ballast_query_job(&bad, &job), BALLAST_INVALID_ARGUMENT,
         "connection.hang_after_s is -2");
  bad = Connection();
  bad.streams = 9;
  EXPECT(ballast_query_job(&bad, &job), BALLAST_INVALID_ARGUMENT,
         "connection.streams is 9, wanted at most 8");
  bad.streams = 0;
  bad.spread = 65;
  EXPECT(ballast_query_job(&bad, &job), BALLAST_INVALID_ARGUMENT,
         "connection.spread is 65, wanted at most 64");
  bad = Connection();
  bad.tls_cert = "cert.pem";
  EXPECT(ballast_query_job(&bad, &job), BALLAST_INVALID_ARGUMENT, "--tls-");
}

/* A caller compiled with a header that had fewer or more fields. */
static void TestStructSizes(void) {
  const ballast_connection connection = Connection();
  ballast_shim_options options = {.struct_size = sizeof(options),
                                  .module = BALLAST_MODULE_VISION,
                                  .connection = &connection};
  ballast_shim* shim = NULL;

  options.struct_size = 0;
  EXPECT(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT,
         "options.struct_size is 0");
  options.struct_size = 1u << 20;
  EXPECT(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT,
         "options.struct_size is 1048576");

  /* An older header lacks pixel_type and all later fields; the library must not
   * read that memory. */
  options.struct_size = offsetof(ballast_shim_options, pixel_type);
  options.pixel_type = 77;
  EXPECT(ballast_shim_create(&options, &shim), BALLAST_UNAVAILABLE, "nowhere");

  struct {
    ballast_shim_options known;
    uint64_t later[2];
  } newer = {.known = {.struct_size = sizeof(newer),
                       .module = BALLAST_MODULE_VISION,
                       .connection = &connection}};
  EXPECT(ballast_shim_create(&newer.known, &shim), BALLAST_UNAVAILABLE,
         "nowhere");
  newer.later[1] = 1;
  EXPECT(ballast_shim_create(&newer.known, &shim), BALLAST_INVALID_ARGUMENT,
         "the library is too old");
}

static void TestCommunicators(void) {
  ballast_communicator* ends[3] = {NULL, NULL, NULL};
  EXPECT(ballast_communicator_in_process(BALLAST_BACKEND_HOST, 0, ends),
         BALLAST_INVALID_ARGUMENT, "a group of 0");
  EXPECT(ballast_communicator_in_process(9, 3, ends), BALLAST_INVALID_ARGUMENT,
         "backend is 9");
  EXPECT_TRUE(ends[0] == NULL);
  EXPECT(ballast_communicator_in_process(BALLAST_BACKEND_HOST, 3, ends),
         BALLAST_OK, "");
  EXPECT_TRUE(ends[0] != NULL && ends[1] != NULL && ends[2] != NULL);
  ballast_communicator_destroy(ends[2]);
  ballast_communicator_destroy(ends[1]);

  const ballast_connection connection = Connection();
  const ballast_nccl_options nccl = {.struct_size = sizeof(nccl)};
  ballast_communicator* made = NULL;
  unsigned char id[BALLAST_NCCL_ID_BYTES] = {0};
  EXPECT(ballast_communicator_nccl(id, 2, 2, &nccl, &made),
         BALLAST_INVALID_ARGUMENT, "rank 2 of a group of 2");
  EXPECT(ballast_communicator_nccl(id, 0, 2, NULL, &made),
         BALLAST_INVALID_ARGUMENT, "options is NULL");
  EXPECT(
      ballast_communicator_nccl_meet(&connection, NULL, 0, 2, 0, &nccl, &made),
      BALLAST_INVALID_ARGUMENT, "group is NULL");
  EXPECT(ballast_communicator_nccl_borrow(NULL, &nccl, &made),
         BALLAST_INVALID_ARGUMENT, "nccl_comm is NULL");

  ballast_shim* shim = NULL;
  ballast_shim_options options = {.struct_size = sizeof(options),
                                  .module = BALLAST_MODULE_VISION,
                                  .connection = &connection};
  /* The failed call took it over, so it is not destroyed here. */
  options.communicator = ends[0];
  EXPECT(ballast_shim_create(&options, &shim), BALLAST_UNAVAILABLE, "nowhere");
  EXPECT(ballast_communicator_in_process(BALLAST_BACKEND_HOST, 1, ends),
         BALLAST_OK, "");
  options.communicator = ends[0];
  options.tensor_communicator = ends[0];
  EXPECT(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT,
         "are one end");
  options.tensor_communicator = NULL;

  if (!ballast_has_backend(BALLAST_BACKEND_CUDA)) {
    options.communicator = NULL;
    options.backend = BALLAST_BACKEND_CUDA;
    EXPECT(ballast_shim_create(&options, &shim), BALLAST_UNIMPLEMENTED,
           "without a CUDA toolkit");
    EXPECT(ballast_nccl_id(id), BALLAST_UNIMPLEMENTED, "without a CUDA");
    EXPECT(ballast_communicator_in_process(BALLAST_BACKEND_CUDA, 3, ends),
           BALLAST_UNIMPLEMENTED, "without a CUDA");
  }
}

static void TestNames(void) {
  EXPECT_TRUE(ballast_abi_version() == BALLAST_ABI_VERSION);
  EXPECT_TRUE(strchr(ballast_version(), '.') != NULL);
  EXPECT_TRUE(strcmp(ballast_status_name(BALLAST_OK), "OK") == 0);
  EXPECT_TRUE(strcmp(ballast_status_name(BALLAST_DATA_LOSS), "DATA_LOSS") == 0);
  EXPECT_TRUE(strcmp(ballast_status_name(99), "UNKNOWN") == 0);
  EXPECT_TRUE(ballast_has_backend(BALLAST_BACKEND_HOST) == 1);
  EXPECT_TRUE(ballast_has_backend(0) == 0);
}

int main(void) {
  EXPECT_TRUE(ballast_last_error()[0] == '\0');
  TestNull();
  TestOptions();
  TestStructSizes();
  TestCommunicators();
  TestNames();
  if (failures == 0) puts("PASSED");
  return failures == 0 ? 0 : 1;
}
