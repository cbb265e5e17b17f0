#ifndef BALLAST_SERVER_SERVICE_SERVER_PARTS_H_
#define BALLAST_SERVER_SERVICE_SERVER_PARTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/live_value.h"
#include "proto/config.pb.h"
#include "server/corpus/guarded_source.h"
#include "server/delivery/active_samples.h"
#include "server/delivery/ahead_fetcher.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/file_sample_builder.h"
#include "server/delivery/loader.h"
#include "server/delivery/stall_watch.h"
#include "server/job/job_setup.h"
#include "server/monitor/balance_board.h"

namespace ballast {

// The parts of a server that read, build and watch. Each needs those before it.
struct ServerParts {
  std::unique_ptr<BuildInstruments> build;
  std::unique_ptr<ActiveSamples> board;
  std::shared_ptr<Loader> loader;
  FileSampleBuilder* builder = nullptr;  // the loader's
  std::unique_ptr<StallWatch> stall_watch;
  // Null: nothing lies in a store.
  std::unique_ptr<AheadFetcher> ahead_fetcher;
  std::shared_ptr<BalanceBoard> balance;
};

// How reads are retried, by serve.read_attempts and serve.read_timeout.
ReadPolicy ReadPolicyOf(const v1::Serve& serve);

// Makes the job's sources read according to `policy` from now on.
void GuardSources(const std::shared_ptr<const LiveValue<ReadPolicy>>& policy,
                  OpenedJob* job);

// What a server keeps to, in bytes (docs/deployment.md, "Memory"):
// serve.memory, `decode_memory`, the memory of row groups and of stores where
// sources have them, and the rest.
uint64_t StatedMemory(const v1::Config& config, uint64_t decode_memory);

// Makes all but `ahead_fetcher` and `balance` for a job that serves `ranks`
// ranks here. `job` is not owned and must outlive the parts. Errors: as
// Loader::Create and StallWatch::Start.
absl::StatusOr<ServerParts> MakeServerParts(const OpenedJob& job,
                                            uint32_t ranks);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_SERVER_PARTS_H_
