#include "proto/schedule/module.h"

namespace ballast {

absl::string_view ModuleName(v1::Module module) {
  switch (module) {
    case v1::MODULE_VISION:
      return "vision";
    case v1::MODULE_LANGUAGE:
      return "language";
    default:
      return "unspecified";
  }
}

std::optional<v1::Module> ParseModule(absl::string_view name) {
  if (name == "vision") return v1::MODULE_VISION;
  if (name == "language") return v1::MODULE_LANGUAGE;
  return std::nullopt;
}

const v1::ModuleSchedule* FindModule(const v1::MicroBatchSchedule& micro_batch,
                                     v1::Module module) {
  for (const v1::ModuleSchedule& entry : micro_batch.modules()) {
    if (entry.module() == module) return &entry;
  }
  return nullptr;
}

}  // namespace ballast
