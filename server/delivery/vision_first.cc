#include "server/delivery/vision_first.h"

#include <string>

#include "proto/module.h"

namespace ballast {

bool ChecksImages(const v1::Config& config) {
  const std::string vision(ModuleName(v1::MODULE_VISION));
  return config.serve().on_bad_sample() != v1::Serve::ON_BAD_SAMPLE_ERROR &&
         config.topology().modules().count(vision) != 0;
}

bool AwaitsVision(const BlockId& language, const BlockId& missing) {
  return missing <= language && language.step - missing.step <= kSameRun;
}

}  // namespace ballast
