// Reports the cost of a step as a job grows from one node to 2,048: eight ranks
// a node that hold both modules, eight receipts a rank, `refined`. Runs the
// job's own code on one core; only the index is synthetic. Prints CSV for
// docs/scaling.md:
//
//   bazel run --config=opt //tests/benchmarks:scaling_report > scaling.csv
//
// `scaling_report NODES` stops at that many nodes. Times are the minimum of
// several runs; bytes are the mean of four steps.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/exchange_plan.h"

namespace ballast {
namespace {

constexpr uint32_t kRanksPerNode = 8;
constexpr uint32_t kSamplesPerRank = 8;
constexpr uint32_t kMaxNodes = 2048;
constexpr uint64_t kSteps = 4;

// One server a node, for the node's ranks of both modules.
v1::Config GetConfig(uint32_t nodes, v1::Delivery delivery) {
  const uint32_t ranks = nodes * kRanksPerNode;
  v1::Config config = JobConfig(ranks, ranks, ranks * kSamplesPerRank,
                                ranks * kSamplesPerRank, delivery);
  auto& servers = *config.mutable_topology()->mutable_servers();
  servers.Clear();
  for (uint32_t node = 0; node < nodes; ++node) {
    v1::Topology::Server& server = *servers.Add();
    server.set_address(absl::StrCat("node", node, ":7070"));
    for (const char* module : {"vision", "language"}) {
      (*server.mutable_ranks())[module] = absl::StrCat(
          node * kRanksPerNode, "-", (node + 1) * kRanksPerNode - 1);
    }
  }
  return config;
}

// Milliseconds of `run`, the minimum of several runs.
template <typename Run>
double Least(const Run& run) {
  double least = 1e30;
  absl::Duration spent;
  for (int i = 0; i < 3 || (i < 50 && spent < absl::Milliseconds(200)); ++i) {
    const absl::Time start = absl::Now();
    run();
    const absl::Duration took = absl::Now() - start;
    spent += took;
    least = std::min(least, absl::ToDoubleMilliseconds(took));
  }
  return least;
}

uint64_t PayloadOf(const v1::MicroBatchSchedule& columns, v1::Module module,
                   int sample) {
  if (module == v1::MODULE_LANGUAGE) {
    return LayOutLanguage(columns.tokens(sample), 3).bytes;
  }
  // One image a sample.
  return uint64_t{3} * 14 * 14 * columns.grid_h(sample) *
         columns.grid_w(sample);
}

// Payload bytes of a step: all, those that `exchange` moves between ranks of
// one node and between nodes, and those that `hybrid` moves between nodes.
struct Bytes {
  uint64_t all = 0, within = 0, between = 0, hybrid = 0;
};

Bytes GetBytes(const v1::StepSchedule& schedule, const v1::Job& job) {
  Bytes bytes;
  const auto node = [](uint32_t rank) { return rank / kRanksPerNode; };
  for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
    for (const v1::ModuleSchedule& module : columns.modules()) {
      const DeliveryRule hybrid = *GetRule(job, module.module());
      for (int i = 0; i < module.owner_size(); ++i) {
        const uint64_t payload = PayloadOf(columns, module.module(), i);
        const uint32_t reader = module.reader(i), owner = module.owner(i);
        bytes.all += payload;
        if (reader == owner) continue;
        (node(reader) == node(owner) ? bytes.within : bytes.between) += payload;
        if (hybrid.GetPuller(reader, owner) != owner) bytes.hybrid += payload;
      }
    }
  }
  return bytes;
}

// The time that a rank's two shims take to plan one micro-batch.
double PlanMilliseconds(const v1::StepSchedule& schedule, const v1::Job& job) {
  return Least([&] {
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      v1::Role role;
      role.set_module(module);
      role.set_dp_rank(kRanksPerNode / 2);
      const JobShape shape = *GetShape(job, role);
      if (!PlanExchange(schedule, 0, role, v1::DELIVERY_EXCHANGE, shape.block)
               .ok()) {
        std::abort();
      }
    }
  });
}

void PrintRow(uint32_t nodes, const FakeSourceIndex& index) {
  const auto scheduler =
      *Scheduler::Create(GetConfig(nodes, v1::DELIVERY_HYBRID), {&index});
  const v1::StepSchedule schedule = *scheduler->Schedule(0);
  const double schedule_ms = Least([&] { (void)scheduler->Schedule(0); });
  std::string wire;
  const double serialise_ms =
      Least([&] { wire = schedule.SerializeAsString(); });
  const double parse_ms = Least([&] {
    v1::StepSchedule parsed;
    if (!parsed.ParseFromString(wire) || !CheckColumns(parsed).ok()) {
      std::abort();
    }
  });
  const double plan_ms = PlanMilliseconds(schedule, scheduler->job());
  Bytes sum;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Bytes bytes = GetBytes(*scheduler->Schedule(step), scheduler->job());
    sum.all += bytes.all;
    sum.within += bytes.within;
    sum.between += bytes.between;
    sum.hybrid += bytes.hybrid;
  }
  const auto mib_a_node = [&](uint64_t bytes) {
    return static_cast<double>(bytes) / kSteps / nodes / (1 << 20);
  };
  absl::PrintF("%d,%d,%d,%.2f,%d,%.2f,%.2f,%.2f,%.1f,%.1f,%.1f,%.1f\n", nodes,
               nodes * kRanksPerNode, nodes * kRanksPerNode * kSamplesPerRank,
               schedule_ms, wire.size(), serialise_ms, parse_ms, plan_ms,
               mib_a_node(sum.all), mib_a_node(sum.within),
               mib_a_node(sum.between), mib_a_node(sum.hybrid));
  std::fflush(stdout);
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  uint32_t most = ballast::kMaxNodes;
  if (argc > 2 || (argc == 2 && !absl::SimpleAtoi(argv[1], &most))) {
    std::fprintf(stderr, "usage: scaling_report [NODES]\n");
    return 2;
  }
  const ballast::FakeSourceIndex index(ballast::Receipts(1 << 18));
  absl::PrintF(
      "nodes,ranks,samples,schedule_ms,schedule_bytes,serialise_ms,parse_ms,"
      "plan_ms,payload_mib_a_node,exchange_within_mib_a_node,"
      "exchange_between_mib_a_node,hybrid_between_mib_a_node\n");
  for (uint32_t nodes = 1; nodes <= most; nodes *= 2) {
    ballast::PrintRow(nodes, index);
  }
}
