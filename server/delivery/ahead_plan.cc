#include "server/delivery/ahead_plan.h"

#include <algorithm>

namespace ballast {

std::vector<AheadSample> SamplesToRead(
    const v1::StepSchedule& schedule,
    const std::map<v1::Module, ServedModule>& served) {
  std::vector<AheadSample> samples;
  for (const v1::MicroBatchSchedule& batch : schedule.micro_batches()) {
    const size_t begin = samples.size();
    for (int i = 0; i < batch.position_size(); ++i) {
      const bool reads = std::any_of(
          batch.modules().begin(), batch.modules().end(),
          [&](const v1::ModuleSchedule& module) {
            const auto found = served.find(module.module());
            return found != served.end() &&
                   found->second.ranks.count(found->second.rule.PullerOf(
                       module.reader(i), module.owner(i))) != 0;
          });
      if (!reads) continue;
      samples.push_back({batch.position(i), batch.source(i), batch.ordinal(i)});
    }
    std::sort(samples.begin() + begin, samples.end(),
              [](const AheadSample& a, const AheadSample& b) {
                return a.position < b.position;
              });
  }
  return samples;
}

}  // namespace ballast
