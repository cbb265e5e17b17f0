#include "tests/simulation/sim_plan.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

template <typename Value, size_t kCount>
Value OneOf(SimRandom* random, const Value (&values)[kCount]) {
  return values[random->Below(kCount)];
}

SimFault DrawFault(const SimPlan& plan, uint32_t server, SimRandom* random) {
  constexpr absl::Duration kLasts[] = {absl::Milliseconds(50), absl::Seconds(2),
                                       absl::Seconds(30), absl::Minutes(3),
                                       absl::Minutes(10)};
  SimFault fault;
  // The last two hit ranks.
  fault.kind = static_cast<SimFault::Kind>(
      random->Below(plan.one_server_is_well ? SimFault::kKindsWithoutChanges - 2
                                            : SimFault::kKindsWithoutChanges));
  const absl::Duration whole =
      plan.most_compute / 2 * plan.steps * plan.job.micro_batches;
  fault.at = random->Between(absl::ZeroDuration(), whole);
  fault.lasts = random->Between(absl::Milliseconds(1), OneOf(random, kLasts));
  fault.server = plan.one_server_is_well ? server : random->Below(plan.servers);
  fault.rank = random->Below(plan.job.vision_dp + plan.job.language_dp);
  fault.to_server = random->Chance(0.5);
  return fault;
}

}  // namespace

const char* SimFault::Name(Kind kind) {
  constexpr const char* kNames[] = {
      "kill a server",    "other data",           "drain a server",
      "freeze a server",  "disk errors",          "disk stall",
      "one-way cut",      "connection reset",     "freeze a rank",
      "kill a rank",      "offer of a change",    "kill at a write",
      "lose revisions",   "partition of servers", "refused step",
      "join of a server",
  };
  static_assert(std::size(kNames) == kKinds);
  return kNames[static_cast<int>(kind)];
}

SimPlan DrawPlan(uint64_t seed) {
  SimRandom random(seed);
  SimPlan plan;
  plan.seed = seed;
  constexpr v1::Delivery kDeliveries[] = {
      v1::DELIVERY_EXCHANGE, v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT,
      v1::DELIVERY_HYBRID};
  plan.job.vision_dp = 1 + random.Below(2);
  plan.job.language_dp = 1 + random.Below(2);
  plan.job.samples_per_group = 2;
  plan.job.micro_batches = 2;
  plan.job.delivery = OneOf(&random, kDeliveries);
  plan.steps = 2 + random.Below(3);
  plan.servers = 2;
  constexpr double kSwitchChances[] = {0, 0.02, 0.2, 0.5};
  plan.switch_chance = OneOf(&random, kSwitchChances);
  plan.network.seed = random.Next();
  constexpr absl::Duration kLatencies[] = {
      absl::Microseconds(100), absl::Milliseconds(5), absl::Milliseconds(200)};
  plan.network.most_latency = OneOf(&random, kLatencies);
  plan.network.handlers = 1 + random.Below(2);
  plan.network.window = 1 + random.Below(4);
  plan.failover.seed = random.Next();
  if (random.Chance(0.3)) plan.failover.patience = absl::Minutes(1);
  constexpr uint64_t kMemories[] = {1, 8 << 10, 1 << 20};
  plan.client_memory = OneOf(&random, kMemories);
  constexpr uint64_t kServerMemories[] = {32 << 10, 128 << 10, 1 << 20};
  plan.server_memory = OneOf(&random, kServerMemories);
  plan.server_threads = 1 + random.Below(3);
  plan.prefetch_steps = 1 + random.Below(3);
  plan.streams = 1 + random.Below(2);
  plan.shared_memory = random.Chance(0.4);
  plan.encoders_first = random.Chance(0.5);
  constexpr absl::Duration kComputes[] = {absl::Milliseconds(1),
                                          absl::Seconds(1), absl::Seconds(20)};
  plan.most_compute = OneOf(&random, kComputes);
  plan.one_server_is_well = random.Chance(0.4);
  const uint32_t server = random.Below(plan.servers);
  const uint64_t faults = random.Below(6);
  for (uint64_t i = 0; i < faults; ++i) {
    plan.faults.push_back(DrawFault(plan, server, &random));
  }
  return plan;
}

SimPlan DrawChangePlan(uint64_t seed) {
  SimPlan plan = DrawPlan(seed);
  SimRandom random(seed ^ 0x42);
  plan.revisions = true;
  plan.one_server_is_well = false;
  plan.servers = 2 + random.Below(2);
  plan.job.micro_batches = 1;
  constexpr uint64_t kSteps[] = {24, 48, 72};
  plan.steps = OneOf(&random, kSteps);
  constexpr absl::Duration kComputes[] = {absl::Seconds(1), absl::Seconds(4)};
  plan.most_compute = OneOf(&random, kComputes);
  plan.faults.clear();
  const absl::Duration whole = plan.most_compute / 2 * plan.steps;
  // Most faults hit the seconds in which servers agree.
  std::vector<absl::Duration> times;
  const uint64_t offers = 1 + random.Below(4);
  for (uint64_t i = 0; i < offers; ++i) {
    SimFault offer;
    offer.kind = SimFault::Kind::kChange;
    offer.at = i > 0 && random.Chance(0.5)
                   ? times.back() +
                         random.Between(absl::ZeroDuration(), absl::Seconds(2))
                   : random.Between(absl::Seconds(3), whole * 2 / 3);
    constexpr absl::Duration kPatience[] = {absl::Milliseconds(500),
                                            absl::Seconds(5), absl::Minutes(3)};
    offer.lasts = OneOf(&random, kPatience);
    offer.from_earliest = static_cast<int>(random.Below(12)) - 1;
    times.push_back(offer.at);
    plan.faults.push_back(offer);
  }
  constexpr SimFault::Kind kKinds[] = {
      SimFault::Kind::kKillServer,  SimFault::Kind::kKillAtWrite,
      SimFault::Kind::kKillAtWrite, SimFault::Kind::kLoseRevisions,
      SimFault::Kind::kDrainServer, SimFault::Kind::kFreezeServer,
      SimFault::Kind::kDiskErrors,  SimFault::Kind::kDiskStall,
      SimFault::Kind::kPartition,   SimFault::Kind::kPartition,
      SimFault::Kind::kCut,         SimFault::Kind::kReset,
      SimFault::Kind::kKillRank,    SimFault::Kind::kRefusedStep,
      SimFault::Kind::kRefusedStep,
  };
  const uint64_t faults = random.Below(5);
  for (uint64_t i = 0; i < faults; ++i) {
    SimFault fault = DrawFault(plan, 0, &random);
    fault.kind = OneOf(&random, kKinds);
    if (random.Chance(0.7)) {
      fault.at = times[random.Below(times.size())] +
                 random.Between(absl::ZeroDuration(), absl::Seconds(4));
    }
    fault.other = (fault.server + 1) % plan.servers;
    fault.writes = 1 + random.Below(4);
    fault.before = random.Chance(0.5);
    fault.from_earliest = static_cast<int>(random.Below(8));
    if (fault.kind == SimFault::Kind::kRefusedStep) {  // before an offer
      fault.at =
          std::max(times[random.Below(times.size())] -
                       random.Between(absl::ZeroDuration(), absl::Seconds(2)),
                   absl::ZeroDuration());
    }
    // The server that decides is the first one.
    if (fault.kind == SimFault::Kind::kLoseRevisions) {
      fault.server = plan.servers - 1;
    }
    plan.faults.push_back(fault);
  }
  return plan;
}

SimPlan DrawApartPlan(uint64_t seed) {
  SimPlan plan = DrawPlan(seed);
  SimRandom random(seed ^ 0x57);
  plan.apart = true;
  plan.one_server_is_well = false;
  plan.job.vision_dp = plan.job.language_dp = plan.servers;
  plan.job.delivery = v1::DELIVERY_DIRECT;
  SimFault other;
  other.kind = SimFault::Kind::kOtherData;
  other.at = random.Between(absl::ZeroDuration(), absl::Seconds(2));
  other.lasts = random.Between(absl::Seconds(1), absl::Minutes(3));
  plan.faults.push_back(other);
  // Of the server that the others compare themselves with, the job's own are
  // the right data.
  for (SimFault& fault : plan.faults) {
    if (fault.kind == SimFault::Kind::kOtherData) fault.server = 1;
  }
  return plan;
}

SimPlan DrawSpreadPlan(uint64_t seed) {
  SimPlan plan = DrawPlan(seed);
  SimRandom random(seed ^ 0x66);
  plan.servers = 2 + random.Below(3);
  plan.spread = 2 + random.Below(3);
  plan.one_server_is_well = false;
  plan.steps = 8 + random.Below(17);
  constexpr absl::Duration kComputes[] = {absl::Milliseconds(100),
                                          absl::Seconds(1), absl::Seconds(5)};
  plan.most_compute = OneOf(&random, kComputes);
  const absl::Duration whole =
      plan.most_compute / 2 * plan.steps * plan.job.micro_batches;
  plan.faults.clear();
  const uint64_t faults = 1 + random.Below(6);
  for (uint64_t i = 0; i < faults; ++i) {
    SimFault fault = DrawFault(plan, 0, &random);
    if (random.Chance(0.5)) fault.kind = SimFault::Kind::kKillServer;
    plan.faults.push_back(fault);
  }
  plan.late_servers = 1 + random.Below(2);
  for (uint64_t i = 0; i < 2 * plan.late_servers; ++i) {
    SimFault join;
    join.kind = SimFault::Kind::kJoin;
    join.server = plan.servers + i % plan.late_servers;
    join.at = random.Between(absl::ZeroDuration(), whole);
    join.lasts = random.Between(absl::Seconds(1), whole + absl::Seconds(5));
    plan.faults.push_back(join);
  }
  plan.servers += plan.late_servers;
  return plan;
}

absl::Duration NextBound(const SimPlan& plan) {
  const FailoverOptions& failover = plan.failover;
  // The first failure is noticed within slow_after, and `patience` runs from
  // then on. The last attempt may begin just before it is over, under limits
  // that each round of hangs has doubled.
  const absl::Duration last_attempt =
      failover.slow_after * (1 + failover.patience / failover.silent_after);
  const absl::Duration blocks = failover.slow_after + failover.patience +
                                failover.max_backoff + last_attempt;
  const absl::Duration schedule =
      failover.patience + failover.max_backoff + 2 * absl::Seconds(10);
  // The exchange waits for the slowest rank of the module, which may compute or
  // be frozen.
  absl::Duration others = plan.most_compute;
  for (const SimFault& fault : plan.faults) {
    if (fault.kind == SimFault::Kind::kFreezeRank) others += fault.lasts;
  }
  return blocks + schedule + others + absl::Seconds(10);
}

std::string Describe(const SimFault& fault) {
  std::string text = absl::StrCat(SimFault::Name(fault.kind), " after ",
                                  absl::FormatDuration(fault.at), " for ",
                                  absl::FormatDuration(fault.lasts));
  switch (fault.kind) {
    case SimFault::Kind::kFreezeRank:
    case SimFault::Kind::kKillRank:
      return absl::StrCat(text, ": rank ", fault.rank);
    case SimFault::Kind::kCut:
    case SimFault::Kind::kReset:
      return absl::StrCat(text, ": rank ", fault.rank,
                          fault.to_server ? " to" : " from", " server ",
                          fault.server);
    case SimFault::Kind::kChange:
      return absl::StrCat(text, ": from the earliest step ",
                          fault.from_earliest < 0 ? "" : "+",
                          fault.from_earliest);
    case SimFault::Kind::kKillAtWrite:
      return absl::StrCat(text, ": server ", fault.server,
                          fault.before ? " before" : " after", " write ",
                          fault.writes);
    case SimFault::Kind::kPartition:
      return absl::StrCat(text, ": servers ", fault.server, " and ",
                          fault.other);
    default:
      return absl::StrCat(text, ": server ", fault.server);
  }
}

std::string Describe(const SimPlan& plan) {
  std::string text = absl::StrCat(
      "seed ", plan.seed, ": vision dp ", plan.job.vision_dp, ", language dp ",
      plan.job.language_dp, ", ", plan.steps, " steps, ",
      v1::Delivery_Name(plan.job.delivery), ", switch chance ",
      plan.switch_chance, ", latency up to ",
      absl::FormatDuration(plan.network.most_latency), ", ",
      plan.shared_memory ? "shared memory" : "chunks", ", ", plan.streams,
      " streams, client memory ", plan.client_memory, ", server memory ",
      plan.server_memory, ", ", plan.server_threads, " threads",
      plan.encoders_first ? ", vision first" : "",
      plan.revisions ? absl::StrCat(", changes, ", plan.servers, " servers")
                     : "",
      plan.apart ? ", servers apart" : "",
      plan.one_server_is_well ? ", one server is well" : "",
      plan.spread > 0
          ? absl::StrCat(", spread over ", plan.spread, " of ", plan.servers,
                         " servers, ", plan.late_servers, " of them late")
          : "");
  for (const SimFault& fault : plan.faults) {
    absl::StrAppend(&text, "\n  ", Describe(fault));
  }
  return text;
}

}  // namespace ballast
