#include "server/delivery/vision_first.h"

#include <string>

#include "proto/schedule/module.h"

namespace ballast {

bool ChecksImages(const v1::Config& config) {
  const std::string vision(ModuleName(v1::MODULE_VISION));
  return config.serve().on_bad_sample() != v1::Serve::ON_BAD_SAMPLE_ERROR &&
         config.topology().modules().count(vision) != 0;
}

bool AwaitsVision(const BlockId& block, const VisionLane& lane,
                  uint64_t vision_begun, uint32_t prefetch_steps) {
  if (block < lane.missing) return false;
  if (block < lane.to_begin) return true;
  if (!lane.goes_on || vision_begun >= kBlocksOfVision) return false;
  if (lane.looks_still >= kStandsStill) return false;
  if (lane.looks_still < kPauses) return true;
  return block.step - lane.to_begin.step > prefetch_steps;
}

}  // namespace ballast
