#include "server/schedule/placement_figures.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "proto/schedule/module.h"

namespace ballast {
namespace {

// The loads of a module's ranks; empty without the module.
std::vector<double> LoadsOf(const v1::MicroBatchSchedule& micro_batch,
                            v1::Module module) {
  const v1::ModuleSchedule* found = FindModule(micro_batch, module);
  if (found == nullptr) return {};
  return {found->load_after().begin(), found->load_after().end()};
}

double Largest(const std::vector<double>& loads) {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

double Mean(const std::vector<double>& loads) {
  if (loads.empty()) return 0;
  return std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
}

// The largest load of a process that has rank r of both modules; modules of
// different sizes share no process, so the heaviest ranks meet.
double Together(const std::vector<double>& vision,
                const std::vector<double>& language) {
  if (vision.size() != language.size()) {
    return Largest(vision) + Largest(language);
  }
  double largest = 0;
  for (size_t r = 0; r < vision.size(); ++r) {
    largest = std::max(largest, vision[r] + language[r]);
  }
  return largest;
}

double Spread(double largest, double mean) {
  return mean > 0 ? largest / mean : 0;
}

}  // namespace

double PlacementFigures::vision_spread() const {
  return Spread(vision_largest, vision_mean);
}

double PlacementFigures::language_spread() const {
  return Spread(language_largest, language_mean);
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
    const std::vector<double> vision = LoadsOf(micro_batch, v1::MODULE_VISION);
    const std::vector<double> language =
        LoadsOf(micro_batch, v1::MODULE_LANGUAGE);
    figures->vision_largest += Largest(vision);
    figures->vision_mean += Mean(vision);
    figures->language_largest += Largest(language);
    figures->language_mean += Mean(language);
    figures->mean_time += Mean(vision) + Mean(language);
    figures->time_together += Together(vision, language);
    figures->time_by_module += Largest(vision) + Largest(language);
  }
}

}  // namespace ballast
