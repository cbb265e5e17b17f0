// A server in a separate process, so that its memory can be measured:
//
//   memory_server SOCKET ARENA MEMORY_MIB RANKS
//
// prints "ready FINGERPRINT" and serves until its standard input ends. Its
// samples are four images of 448 x 448 per rank and step, filled by a formula,
// not decoded.

#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/numbers.h"
#include "server/delivery/loader.h"
#include "server/schedule/scheduler.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/service/loader_service.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

constexpr uint32_t kSamplesOfARank = 4;

class PaintingBuilder : public SampleBuilder {
 public:
  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    std::memset(request.payload.data(),
                static_cast<int>(request.record.position),
                request.payload.size());
    return SampleOutcome::kBuilt;
  }
};

int Serve(const std::string& socket, const std::string& arena,
          uint64_t memory_mib, uint32_t ranks) {
  const uint32_t micro = ranks * kSamplesOfARank;
  v1::Config config = JobConfig(ranks, 0, micro, micro, v1::DELIVERY_OFF);
  config.mutable_serve()->set_memory(memory_mib << 20);
  config.mutable_serve()->set_prefetch_steps(8);
  config.mutable_serve()->set_arena(arena);
  FakeSourceIndex::Sample sample;
  sample.text_tokens = 20;
  sample.images = {{448, 448}};
  const FakeSourceIndex index(
      std::vector<FakeSourceIndex::Sample>(997, sample));
  const auto scheduler = *Scheduler::Create(config, {&index});
  const auto loader = Loader::Create(config, ranks, scheduler.get(),
                                     std::make_unique<PaintingBuilder>());
  if (!loader.ok()) {
    std::cerr << loader.status() << "\n";
    return 1;
  }
  CallCount calls;
  LoaderServiceImpl service("memory", scheduler.get(), loader->get(), &calls);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  std::cout << "ready " << scheduler->fingerprint().hash() << std::endl;
  std::string rest;
  while (std::getline(std::cin, rest)) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  uint64_t memory_mib = 0;
  uint32_t ranks = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[3], &memory_mib) ||
      !absl::SimpleAtoi(argv[4], &ranks)) {
    std::cerr << "usage: memory_server SOCKET ARENA MEMORY_MIB RANKS\n";
    return 2;
  }
  return ballast::Serve(argv[1], argv[2], memory_mib, ranks);
}
