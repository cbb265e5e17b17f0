#include "tests/fakes/test_cluster.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/loader_client.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/schedule.pb.h"
#include "server/job/index_sources.h"
#include "server/serve/service/server.h"

namespace ballast {
namespace {

// Ranks [server * dp / servers, …) as a rank list; empty for none.
std::string RankShare(uint32_t dp, int server, int servers) {
  const uint32_t begin = dp * server / servers;
  const uint32_t end = dp * (server + 1) / servers;
  return begin == end ? "" : absl::StrCat(begin, "-", end - 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TestCluster>> TestCluster::Start(
    LoadedConfig config, int servers) {
  auto cluster = std::unique_ptr<TestCluster>(new TestCluster());
  char sockets[] = "/tmp/ballast-test-XXXXXX";
  if (mkdtemp(sockets) == nullptr) {
    return absl::UnavailableError("cannot make a directory for sockets");
  }
  cluster->sockets_ = sockets;
  v1::Topology& topology = *config.config.mutable_topology();
  topology.clear_servers();
  for (int s = 0; s < servers; ++s) {
    cluster->addresses_.push_back(
        absl::StrCat("unix:", sockets, "/", s, ".sock"));
    v1::Topology::Server& server = *topology.add_servers();
    server.set_address(cluster->addresses_.back());
    for (const auto& [name, module] : topology.modules()) {
      const std::string ranks = RankShare(module.dp(), s, servers);
      if (!ranks.empty()) (*server.mutable_ranks())[name] = ranks;
    }
  }
  cluster->config_ = std::move(config);
  BALLAST_RETURN_IF_ERROR(IndexSources(cluster->config_, {}).status());
  cluster->servers_.resize(servers);
  for (int s = 0; s < servers; ++s) {
    BALLAST_RETURN_IF_ERROR(cluster->Restart(s));
  }
  return cluster;
}

TestCluster::TestCluster() = default;

TestCluster::~TestCluster() {
  servers_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(sockets_, ignored);
}

LoadedConfig TestCluster::GetConfig(int server) const {
  LoadedConfig config = config_;
  config.config.mutable_serve()->clear_listen();
  config.config.mutable_serve()->add_listen(addresses_[server]);
  if (!config.config.serve().revisions().empty()) {
    absl::StrAppend(config.config.mutable_serve()->mutable_revisions(), ".",
                    server);
  }
  return config;
}

void TestCluster::Kill(int server) { servers_[server].reset(); }

absl::Status TestCluster::Restart(int server) {
  BALLAST_ASSIGN_OR_RETURN(servers_[server],
                           LoaderServer::Start(GetConfig(server)));
  return absl::OkStatus();
}

absl::StatusOr<TestCluster::Batches> TestCluster::RunRanks(
    uint64_t step, uint64_t steps, const v1::Fingerprint& checkpoint,
    const TrainerPlace& place) const {
  return RunRanks(step, steps, checkpoint, place, nullptr);
}

absl::StatusOr<TestCluster::Batches> TestCluster::RunRanks(
    uint64_t step, uint64_t steps, const OnBatch& on_batch) const {
  return RunRanks(step, steps, v1::Fingerprint(), TrainerPlace(), on_batch);
}

absl::StatusOr<TestCluster::Batches> TestCluster::RunRanks(
    uint64_t step, uint64_t steps, const v1::Fingerprint& checkpoint,
    const TrainerPlace& place, const OnBatch& on_batch) const {
  const auto client = LoaderClient::Create(addresses_[0]);
  BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse attached,
                           client->Attach({}, {}));
  WorldOptions options;
  options.servers = addresses_;
  options.start_step = step;
  options.steps = steps;
  options.checkpoint = checkpoint;
  options.place = place;
  // Ranks are then never far ahead of what they have been given.
  if (on_batch) options.max_bytes = 1;
  BALLAST_ASSIGN_OR_RETURN(const std::vector<v1::Role> roles,
                           GetRoles(attached.job(), options));
  Mutex mutex;
  Batches batches;
  BALLAST_RETURN_IF_ERROR(
      RunWorld(attached.job(), attached.fingerprint(), roles, options,
               LoaderClient::Create, [&](const RankBatch& got) {
                 if (on_batch) on_batch(got);
                 const PackedBatch& batch = *got.batch;
                 MutexLock lock(&mutex);
                 batches[{batch.step, batch.micro_batch, batch.role.module(),
                          batch.role.dp_rank()}] = batch;
               }));
  return batches;
}

}  // namespace ballast
