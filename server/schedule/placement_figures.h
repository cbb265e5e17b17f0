#ifndef BALLAST_SERVER_SCHEDULE_PLACEMENT_FIGURES_H_
#define BALLAST_SERVER_SCHEDULE_PLACEMENT_FIGURES_H_

#include <cstdint>
#include <map>

#include "proto/schedule.pb.h"

namespace ballast {

// What a schedule costs a trainer, to compare balance.objective and
// balance.placement. Times are sums of costs (balance.cost), in their unit, and
// so are predictions only as good as the costs are. Plain values.
struct PlacementFigures {
  uint64_t steps = 0;
  uint64_t micro_batches = 0;
  // The micro-batches' mean load of a rank, all modules together: no schedule
  // takes less time.
  double mean_time = 0;
  // Time if ranks wait for each other once in a micro-batch: the largest load
  // of all modules together.
  double time_together = 0;
  // Time if they wait after each module: the sum of the modules' largest loads.
  // With split placement always so, since the exchange
  // of embeddings is such a wait.
  double time_by_module = 0;
  // The largest and the mean loads of each module, summed over micro-batches.
  struct Loads {
    double largest = 0;
    double mean = 0;
  };
  std::map<v1::Module, Loads> loads;
  // Image tokens, and those whose embeddings move.
  uint64_t image_tokens = 0;
  uint64_t tokens_within_servers = 0;
  uint64_t tokens_between_servers = 0;

  // The module's largest loads over the mean ones. 1: even; 0: no load.
  double spread(v1::Module module) const;
};

// Adds a step. `patches_a_token`: model.merge squared. `schedule` has passed
// CheckColumns.
void AddStep(const v1::StepSchedule& schedule, uint32_t patches_a_token,
             PlacementFigures* figures);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PLACEMENT_FIGURES_H_
