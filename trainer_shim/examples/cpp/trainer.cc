// A trainer in C++ over libballast_shim: the language ranks of a job, each a
// thread, in host memory. Its "training" counts the supervised tokens, to show
// where a step's normaliser comes from: every rank knows the whole step's count
// without a collective.
//
//   trainer unix:/run/ballast/a.sock RANKS STEPS
//
// RANKS is the job's topology.modules.language.dp. docs/c_api.md says how it is
// built.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "trainer_shim/c_api/c_api.h"

namespace {

// Ends the program if a call has failed.
void Check(int status, const char* what) {
  if (status == BALLAST_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, ballast_status_name(status),
               ballast_last_error());
  std::exit(1);
}

// Returns the tensor of that name, which must exist.
ballast_tensor Find(const ballast_batch* batch, const char* name) {
  ballast_batch_info info = {};
  info.struct_size = sizeof(info);
  Check(ballast_batch_get_info(batch, &info), "batch");
  for (uint32_t i = 0; i < info.num_tensors; ++i) {
    ballast_tensor tensor = {};
    tensor.struct_size = sizeof(tensor);
    Check(ballast_batch_get_tensor(batch, i, &tensor), "tensor");
    if (std::strcmp(tensor.name, name) == 0) return tensor;
  }
  std::fprintf(stderr, "the batch has no %s\n", name);
  std::exit(1);
}

// Forward and backward of a micro-batch: here, the sum of its loss mask.
double Train(const ballast_batch* batch) {
  const ballast_tensor mask = Find(batch, "loss_mask");
  const float* values = static_cast<const float*>(mask.data);
  double loss = 0;
  for (int64_t i = 0; i < mask.shape[1]; ++i) loss += values[i];
  return loss;
}

void RunRank(const char* address, uint32_t rank, uint64_t steps,
             ballast_communicator* communicator, std::vector<double>* losses) {
  ballast_connection servers = {};
  servers.struct_size = sizeof(servers);
  servers.servers = &address;
  servers.num_servers = 1;
  servers.wait_for_server_s = 60;
  ballast_shim_options options = {};
  options.struct_size = sizeof(options);
  options.connection = &servers;
  options.module = BALLAST_MODULE_LANGUAGE;
  options.dp_rank = rank;
  options.communicator = communicator;
  options.steps = steps;
  ballast_shim* shim = nullptr;
  Check(ballast_shim_create(&options, &shim), "create");

  while (true) {
    const ballast_batch* batch = nullptr;
    const int status = ballast_shim_next(shim, nullptr, &batch);
    if (status == BALLAST_OUT_OF_RANGE) break;
    Check(status, "next");
    ballast_batch_info info = {};
    info.struct_size = sizeof(info);
    Check(ballast_batch_get_info(batch, &info), "batch");
    ballast_totals step = {};
    step.struct_size = sizeof(step);
    Check(ballast_batch_get_totals(batch, BALLAST_TOTALS_STEP, &step),
          "totals");
    // The mean over the whole step's tokens, on all ranks.
    (*losses)[info.step] += Train(batch) / step.label_tokens;
    ballast_batch_release(batch);
  }
  ballast_shim_destroy(shim);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: trainer ADDRESS RANKS STEPS\n");
    return 2;
  }
  if (ballast_abi_version() != BALLAST_ABI_VERSION) {
    std::fprintf(stderr, "libballast_shim has ABI %u, wanted %d\n",
                 ballast_abi_version(), BALLAST_ABI_VERSION);
    return 1;
  }
  const uint32_t ranks = std::strtoul(argv[2], nullptr, 10);
  const uint64_t steps = std::strtoull(argv[3], nullptr, 10);
  std::vector<ballast_communicator*> ends(ranks);
  Check(
      ballast_communicator_in_process(BALLAST_BACKEND_HOST, ranks, ends.data()),
      "communicator");
  std::vector<std::vector<double>> losses(ranks, std::vector<double>(steps));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(RunRank, argv[1], rank, steps, ends[rank],
                         &losses[rank]);
  }
  for (std::thread& thread : threads) thread.join();
  // The ranks' shares add up to 1 in every step.
  for (uint64_t step = 0; step < steps; ++step) {
    double loss = 0;
    for (const std::vector<double>& rank : losses) loss += rank[step];
    std::printf("step %llu: loss %.6f\n", static_cast<unsigned long long>(step),
                loss);
  }
  return 0;
}
