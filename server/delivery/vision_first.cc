#include "server/delivery/vision_first.h"

#include <string>

#include "proto/module.h"

namespace ballast {

bool ChecksImages(const v1::Config& config) {
  const std::string vision(ModuleName(v1::MODULE_VISION));
  return config.serve().on_bad_sample() != v1::Serve::ON_BAD_SAMPLE_ERROR &&
         config.topology().modules().count(vision) != 0;
}

bool AwaitsVision(const BlockId& language, const BlockId& vision,
                  uint32_t prefetch_steps) {
  return vision <= language && language.step - vision.step <= prefetch_steps;
}

}  // namespace ballast
