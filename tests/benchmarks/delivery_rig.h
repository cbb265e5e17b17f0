#ifndef BALLAST_TESTS_BENCHMARKS_DELIVERY_RIG_H_
#define BALLAST_TESTS_BENCHMARKS_DELIVERY_RIG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "client/loader_client.h"
#include "proto/config.pb.h"
#include "server/delivery/loader.h"
#include "server/schedule/scheduler.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/service/listening.h"
#include "server/serve/service/loader_service.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {

// How clients reach a server: at its Unix socket or at 127.0.0.1, by gRPC
// alone, or there through the relay, as a server has it.
enum class Way { kSocket, kTcp, kRelay };

// A server whose blocks are all built before measuring, and clients that each
// pull the blocks of one rank. A client's blocks are kSteps of kSamples images
// of 448 x 448: 4.6 MiB each, 37 MiB in all.
class DeliveryRig {
 public:
  static constexpr uint64_t kSteps = 8;
  static constexpr uint32_t kSamples = 8;

  // Aborts if anything fails, as do all functions here.
  explicit DeliveryRig(uint32_t clients, Way way = Way::kSocket);
  ~DeliveryRig();

  uint32_t clients() const { return clients_; }
  uint64_t bytes_a_client() const { return bytes_; }

  // Each client, on its own thread, takes its blocks from a BatchStream that
  // may hold four at a time, and passes them to `take`. Returns the seconds
  // from when every client had its first block to when the last client released
  // its last. If given, `next_us` receives the duration of each Next except a
  // client's first, in microseconds.
  double Pull(bool shared_memory,
              const std::function<void(uint32_t client,
                                       const FetchedBlock& block)>& take,
              std::vector<double>* next_us = nullptr);

 private:
  const uint32_t clients_;
  const FakeSourceIndex index_;
  const v1::Config config_;
  const std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<Loader> loader_;
  CallCount calls_;
  std::unique_ptr<LoaderServiceImpl> service_;
  std::string directory_;
  CallServer server_;  // without relays, unless by Way::kRelay
  std::vector<std::unique_ptr<LoaderClient>> connections_;
  uint64_t bytes_ = 0;
};

// Servers that send messages of 1 MiB from memory, and clients that drop them:
// only gRPC.
class RawStreams {
 public:
  explicit RawStreams(uint32_t clients, Way way = Way::kSocket);  // no kRelay
  ~RawStreams();

  // Seconds from when every client had its first message to when the last had
  // its last; each receives `messages`.
  double Pull(uint64_t messages);

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::string directory_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

// Runs `work(client)` for each client on its own thread, where it calls the
// given function once it is ready for the clock. Returns the seconds from when
// all were ready to when the last returned. The results are destroyed
// afterwards: ending a stream is not measured.
double TimeTogether(
    uint32_t clients,
    const std::function<std::shared_ptr<void>(
        uint32_t client, const std::function<void()>& ready)>& work);

}  // namespace ballast

#endif  // BALLAST_TESTS_BENCHMARKS_DELIVERY_RIG_H_
