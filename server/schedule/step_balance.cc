#include "server/schedule/step_balance.h"

#include <algorithm>
#include <numeric>

#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

// The largest and the mean load of each micro-batch, summed over a step.
struct Spread {
  double largest = 0;
  double mean = 0;

  template <typename Loads>
  void Add(const Loads& loads) {
    if (loads.empty()) return;
    largest += *std::max_element(loads.begin(), loads.end());
    mean += std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
  }
  double ratio() const { return mean > 0 ? largest / mean : 0; }
};

template <typename Loads>
void AddColumns(const Loads& loads, Loads* sums) {
  for (int r = 0; r < std::min(loads.size(), sums->size()); ++r) {
    *sums->Mutable(r) += loads.Get(r);
  }
}

void CountMoves(const v1::MicroBatchSchedule& columns,
                const v1::ModuleSchedule& schedule, const ServerOfRank& servers,
                const BlockGeometry& geometry, v1::ModuleBalance* balance) {
  const std::vector<uint64_t> bytes =
      PayloadBytes(columns, GetMedia(schedule.module()), geometry);
  const auto ranks = static_cast<uint32_t>(balance->samples_out_size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    balance->set_samples(balance->samples() + 1);
    balance->set_bytes(balance->bytes() + bytes[i]);
    const uint32_t from = schedule.reader(i);
    const uint32_t to = schedule.owner(i);
    if (from == to || from >= ranks || to >= ranks) continue;
    v1::Moved* moved = ShareServer(servers, from, to)
                           ? balance->mutable_within_servers()
                           : balance->mutable_between_servers();
    moved->set_samples(moved->samples() + 1);
    moved->set_bytes(moved->bytes() + bytes[i]);
    ++*balance->mutable_samples_out()->Mutable(from);
    ++*balance->mutable_samples_in()->Mutable(to);
    *balance->mutable_bytes_out()->Mutable(from) += bytes[i];
    *balance->mutable_bytes_in()->Mutable(to) += bytes[i];
  }
}

}  // namespace

absl::StatusOr<ServersOfRanks> FindServersOfRanks(const v1::Config& config) {
  ServersOfRanks found;
  for (const v1::Module module : Modules(config)) {
    BALLAST_ASSIGN_OR_RETURN(found[module], FindServerOfRank(config, module));
  }
  return found;
}

v1::StepBalance BalanceOf(const v1::StepSchedule& schedule,
                          const ServersOfRanks& servers,
                          const BlockGeometry& geometry) {
  const ServerOfRank kOneServer;
  v1::StepBalance balance;
  balance.set_step(schedule.step());
  balance.set_micro_batches(schedule.micro_batches_size());
  *balance.mutable_totals() = schedule.totals();
  if (schedule.micro_batches().empty()) return balance;
  for (const v1::ModuleSchedule& first : schedule.micro_batches(0).modules()) {
    v1::ModuleBalance* of = balance.add_modules();
    of->set_module(first.module());
    const int ranks = first.load_after_size();
    of->mutable_load_before()->Resize(ranks, 0);
    of->mutable_load_after()->Resize(ranks, 0);
    for (auto* column : {of->mutable_samples_out(), of->mutable_samples_in(),
                         of->mutable_bytes_out(), of->mutable_bytes_in()}) {
      column->Resize(ranks, 0);
    }
    const auto known = servers.find(first.module());
    const ServerOfRank& server_of_rank =
        known == servers.end() ? kOneServer : known->second;
    Spread before;
    Spread after;
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      const v1::ModuleSchedule* module = FindModule(columns, first.module());
      if (module == nullptr) continue;
      before.Add(module->load_before());
      after.Add(module->load_after());
      AddColumns(module->load_before(), of->mutable_load_before());
      AddColumns(module->load_after(), of->mutable_load_after());
      CountMoves(columns, *module, server_of_rank, geometry, of);
    }
    of->set_spread_before(before.ratio());
    of->set_spread_after(after.ratio());
  }
  return balance;
}

void DropRanks(v1::StepBalance* balance) {
  for (v1::ModuleBalance& module : *balance->mutable_modules()) {
    module.clear_load_before();
    module.clear_load_after();
    module.clear_samples_out();
    module.clear_samples_in();
    module.clear_bytes_out();
    module.clear_bytes_in();
  }
}

}  // namespace ballast
