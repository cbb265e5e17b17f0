#ifndef BALLAST_TESTS_SIMULATION_SIM_PLAN_H_
#define BALLAST_TESTS_SIMULATION_SIM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/failover.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/simulation/sim_network.h"

namespace ballast {

// One fault that comes in from outside, and goes away again.
struct SimFault {
  enum class Kind {
    kKillServer,    // it comes back after `lasts`
    kOtherData,     // likewise, and serves other data for as long again
    kDrainServer,   // SIGTERM; it comes back
    kFreezeServer,  // SIGSTOP, SIGCONT
    kDiskErrors,    // reads fail now and then
    kDiskStall,     // no read ends
    kCut,           // one direction between a rank's machine and a server's
    kReset,         // all connections between them break
    kFreezeRank,
    kKillRank,
    // Of a job that changes while it runs (docs/changes.md):
    kChange,         // a client offers a change, and dies after `lasts`
    kKillAtWrite,    // at a write of serve.revisions; the server comes back
    kLoseRevisions,  // the server comes back without the file
    kPartition,      // both directions between two servers
    kRefusedStep,    // a rank far ahead of the others, while the disk is full
    // Of a job whose ranks spread:
    kJoin,  // a late server starts, and is killed after `lasts`
  };
  static constexpr int kKinds = 16;
  static constexpr int kKindsWithoutChanges = 10;
  static const char* Name(Kind kind);

  Kind kind = Kind::kKillServer;
  absl::Duration at;
  absl::Duration lasts;
  uint32_t server = 0;
  uint32_t rank = 0;       // among all ranks; unused by faults of a server
  bool to_server = false;  // the direction of a cut
  uint32_t other = 0;      // the other server of a partition
  // kKillAtWrite: the write that the server dies at, from 1, and whether it
  // dies before it is done.
  uint32_t writes = 0;
  bool before = false;
  // kChange, kRefusedStep: the step, from the earliest one on that a change
  // could begin at.
  int from_earliest = 0;
};

// Everything that a run draws from its seed.
struct SimPlan {
  uint64_t seed = 0;
  SyntheticJob job;
  uint64_t steps = 0;
  uint32_t servers = 2;
  double switch_chance = 0;
  SimNetwork::Options network;
  FailoverOptions failover;
  uint64_t client_memory = 0;  // RoleSource::Options::max_bytes
  uint64_t server_memory = 0;
  uint32_t server_threads = 2;
  uint32_t prefetch_steps = 2;
  uint32_t streams = 1;
  bool shared_memory = false;
  bool encoders_first = false;
  absl::Duration most_compute;  // of a trainer between two batches
  // All faults hit one server, so that no rank may fail.
  bool one_server_is_well = false;
  // All servers have serve.revisions.
  bool revisions = false;
  // Each rank has one server alone and does not know the job's fingerprint;
  // topology.meeting of all servers is server 0, and the delivery is direct.
  bool apart = false;
  // RoleSource::Options::spread.
  uint32_t spread = 0;
  // The last of `servers`, which are not there before a kJoin.
  uint32_t late_servers = 0;
  std::vector<SimFault> faults;
};

// The plan of a seed.
SimPlan DrawPlan(uint64_t seed);
// Likewise, of a job that is changed while it runs: two or three servers, one
// to four offers, often two at once, and faults of servers and ranks around
// them. The server that decides keeps its file.
SimPlan DrawChangePlan(uint64_t seed);

// Likewise, of a job whose servers are `apart`: the other one is started with
// another configuration for a while, among other faults.
SimPlan DrawApartPlan(uint64_t seed);

// Likewise, of a job whose ranks spread over two to four servers, which are
// killed often, and late ones, which join and leave.
SimPlan DrawSpreadPlan(uint64_t seed);

// The longest that a Next may take under the plan's faults.
absl::Duration NextBound(const SimPlan& plan);

std::string Describe(const SimPlan& plan);
std::string Describe(const SimFault& fault);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_PLAN_H_
