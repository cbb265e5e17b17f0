#include "tests/fuzz/seeds.h"

#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

BlockPlan SeedPlan() {
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  role.set_dp_rank(1);
  BlockGeometry geometry;
  geometry.patch = 4;
  return *PlanBlock(SyntheticSchedule(SyntheticJob(), 0), 0, role,
                    v1::DELIVERY_EXCHANGE, geometry);
}

}  // namespace ballast
