#include "server/schedule/step_balance.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/align.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "server/config/rank_list.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

// The largest and the mean load of a micro-batch, summed over a step's.
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

// Per sample: the bytes of its payload in the module's blocks, as
// proto/block/block_plan.h lays them out.
std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& columns,
                                   v1::Module module,
                                   const BlockGeometry& geometry) {
  std::vector<uint64_t> bytes(columns.tokens_size(), 0);
  int image = 0;
  for (int i = 0; i < columns.tokens_size(); ++i) {
    if (module == v1::MODULE_LANGUAGE) {
      bytes[i] =
          LayOutLanguage(columns.tokens(i), geometry.position_axes).bytes;
      continue;
    }
    for (uint32_t k = 0; k < columns.images(i); ++k, ++image) {
      const uint64_t patches =
          uint64_t{columns.grid_h(image)} * columns.grid_w(image);
      bytes[i] += AlignUp(3 * patches * geometry.patch * geometry.patch,
                          kPixelAlignment);
    }
    bytes[i] = AlignUp(bytes[i], kSampleAlignment);
  }
  return bytes;
}

void CountMoves(const v1::MicroBatchSchedule& columns,
                const v1::ModuleSchedule& schedule,
                const std::vector<uint32_t>* servers,
                const BlockGeometry& geometry, v1::ModuleBalance* balance) {
  const std::vector<uint64_t> bytes =
      PayloadBytes(columns, schedule.module(), geometry);
  const auto server = [servers](uint32_t rank) {
    return servers == nullptr || rank >= servers->size() ? 0 : (*servers)[rank];
  };
  const auto ranks = static_cast<uint32_t>(balance->samples_out_size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    balance->set_samples(balance->samples() + 1);
    balance->set_bytes(balance->bytes() + bytes[i]);
    const uint32_t from = schedule.reader(i);
    const uint32_t to = schedule.owner(i);
    if (from == to || from >= ranks || to >= ranks) continue;
    v1::Moved* moved = server(from) == server(to)
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
    found[module].resize(DpSize(config, module), 0);
  }
  for (int s = 0; s < config.topology().servers_size(); ++s) {
    for (const auto& [name, list] : config.topology().servers(s).ranks()) {
      const auto module = ParseModule(name);
      if (!module.has_value()) continue;
      BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks,
                               ParseRankList(list));
      std::vector<uint32_t>& servers = found[*module];
      for (const uint32_t rank : ranks) {
        if (rank < servers.size()) servers[rank] = s;
      }
    }
  }
  return found;
}

v1::StepBalance BalanceOf(const v1::StepSchedule& schedule,
                          const ServersOfRanks& servers,
                          const BlockGeometry& geometry) {
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
    Spread before;
    Spread after;
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      const v1::ModuleSchedule* module = FindModule(columns, first.module());
      if (module == nullptr) continue;
      before.Add(module->load_before());
      after.Add(module->load_after());
      AddColumns(module->load_before(), of->mutable_load_before());
      AddColumns(module->load_after(), of->mutable_load_after());
      CountMoves(columns, *module,
                 known == servers.end() ? nullptr : &known->second, geometry,
                 of);
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
