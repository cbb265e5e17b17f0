#include "server/schedule/placement_figures.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ballast {
namespace {

double Largest(const google::protobuf::RepeatedField<double>& loads) {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

double Mean(const google::protobuf::RepeatedField<double>& loads) {
  if (loads.empty()) return 0;
  return std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
}

// The largest load of a process that has rank r of every module; modules of
// different sizes share no process, so the heaviest ranks meet.
double Together(const v1::MicroBatchSchedule& micro_batch) {
  double heaviest = 0;
  std::vector<double> sums;
  bool same_size = true;
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    const auto& loads = module.load_after();
    heaviest += Largest(loads);
    if (sums.empty()) sums.resize(loads.size(), 0);
    if (sums.size() != static_cast<size_t>(loads.size())) {
      same_size = false;
      continue;
    }
    for (size_t r = 0; r < sums.size(); ++r) sums[r] += loads.Get(r);
  }
  if (!same_size || sums.empty()) return heaviest;
  return *std::max_element(sums.begin(), sums.end());
}

}  // namespace

double PlacementFigures::spread(v1::Module module) const {
  const auto found = loads.find(module);
  if (found == loads.end() || !(found->second.mean > 0)) return 0;
  return found->second.largest / found->second.mean;
}

void AddStep(const v1::StepSchedule& schedule, uint32_t patches_a_token,
             PlacementFigures* figures) {
  ++figures->steps;
  figures->image_tokens += schedule.totals().patches() / patches_a_token;
  const v1::EmbeddingsMoved& moved = schedule.totals().embeddings_moved();
  figures->tokens_within_servers += moved.tokens_within_servers();
  figures->tokens_between_servers += moved.tokens_between_servers();
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    ++figures->micro_batches;
    for (const v1::ModuleSchedule& module : micro_batch.modules()) {
      const double largest = Largest(module.load_after());
      const double mean = Mean(module.load_after());
      PlacementFigures::Loads& loads = figures->loads[module.module()];
      loads.largest += largest;
      loads.mean += mean;
      figures->mean_time += mean;
      figures->time_by_module += largest;
    }
    figures->time_together += Together(micro_batch);
  }
}

}  // namespace ballast
