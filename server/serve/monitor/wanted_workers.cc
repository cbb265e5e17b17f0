#include "server/serve/monitor/wanted_workers.h"

#include <algorithm>
#include <cmath>

namespace ballast {

uint32_t WantedWorkers(const WorkersLoad& load) {
  constexpr double kSpare = 0.1;
  double more = kSpare;
  if (load.samples_waiting > 0 && load.streams > 0) {
    more = std::max(more, static_cast<double>(load.streams_waiting) /
                              static_cast<double>(load.streams));
  }
  return std::max<uint32_t>(1, std::lround(std::ceil(load.busy * (1 + more))));
}

}  // namespace ballast
