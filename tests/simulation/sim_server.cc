#include "tests/simulation/sim_server.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <grpcpp/test/default_reactor_test_peer.h>

#include "common/grpc_status.h"
#include "server/delivery/block_ledger.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

// More than the footprint of any block of a simulation.
constexpr uint64_t kLargestBlock = 64 << 10;

v1::Config GetConfig(const SimServer::Options& options) {
  const SyntheticJob& job = options.job;
  v1::Config config = JobConfig(job.vision_dp, job.language_dp,
                                job.micro_batches * MicroBatchOf(job),
                                MicroBatchOf(job), job.delivery);
  v1::Serve& serve = *config.mutable_serve();
  serve.set_threads(options.threads);
  serve.set_memory(options.memory);
  serve.set_prefetch_steps(options.prefetch_steps);
  serve.set_arena(options.arena.empty() ? "off" : options.arena);
  if (!options.encoders_first) {
    serve.set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  }
  return config;
}

}  // namespace

SimServer::SimServer(const Options& options, SimNetwork* network,
                     const SimDisk* disk)
    : options_(options),
      network_(*network),
      node_(network->AddNode(options.machine)),
      scheduler_(MakeSimScheduler(options.job, options.fingerprint_version)) {
  const uint32_t ranks = options.job.vision_dp + options.job.language_dp;
  // Its threads belong to its node.
  SimThreads& threads = *SimThreads::Current();
  threads.Join(threads.Start(node_, [&] {
    auto loader =
        Loader::Create(GetConfig(options_), ranks, scheduler_.get(),
                       MakeSimBuilder(options_.data, disk), Clock::Real());
    if (!loader.ok()) std::abort();
    loader_ = *std::move(loader);
  }));
  PullLimits::Settings limits;
  limits.last_write = absl::InfiniteDuration();  // gRPC's timers take a thread
  service_ = std::make_unique<LoaderServiceImpl>(
      options_.address, scheduler_.get(), loader_.get(), &calls_, limits);
  network_.Listen(options_.address, options_.machine, this);
}

SimServer::~SimServer() {
  network_.Listen(options_.address, options_.machine, nullptr);
  network_.Crash(node_);
  loader_->Drain();
  network_.AwaitNoCalls(node_);
  service_.reset();
  loader_.reset();
  network_.StopNode(node_);
}

void SimServer::Drain() {
  network_.Listen(options_.address, options_.machine, nullptr);
  loader_->Drain();
  service_->Drain();
  SimThreads& threads = *SimThreads::Current();
  threads.SleepUntil(threads.Now() + absl::Seconds(10));
}

absl::StatusOr<v1::AttachResponse> SimServer::Attach(
    const v1::AttachRequest& request) {
  grpc::CallbackServerContext context;
  const grpc::testing::DefaultReactorTestPeer peer(&context);
  v1::AttachResponse response;
  service_->Attach(&context, &request, &response);
  const absl::Status status = FromGrpcStatus(peer.test_status());
  if (!status.ok()) return status;
  return response;
}

uint64_t SimServer::MemoryBeyondBound() const {
  const uint64_t bound =
      options_.memory + loader_->open_streams() * kLargestBlock;
  const uint64_t in_use = loader_->memory_in_use();
  return in_use > bound ? in_use - bound : 0;
}

}  // namespace ballast
