#include "proto/schedule/module.h"

namespace ballast {

absl::string_view ModuleName(v1::Module module) {
  for (const ModuleKind& kind : kModuleKinds) {
    if (kind.module == module) return kind.name;
  }
  return "unspecified";
}

absl::string_view CostUnit(v1::Module module) {
  for (const ModuleKind& kind : kModuleKinds) {
    if (kind.module == module) return kind.unit;
  }
  return "units";
}

std::optional<v1::Module> ParseModule(absl::string_view name) {
  for (const ModuleKind& kind : kModuleKinds) {
    if (kind.name == name) return kind.module;
  }
  return std::nullopt;
}

std::vector<std::string> ModuleNames() {
  std::vector<std::string> names;
  for (const ModuleKind& kind : kModuleKinds) names.emplace_back(kind.name);
  return names;
}

const v1::ModuleSchedule* FindModule(const v1::MicroBatchSchedule& micro_batch,
                                     v1::Module module) {
  for (const v1::ModuleSchedule& entry : micro_batch.modules()) {
    if (entry.module() == module) return &entry;
  }
  return nullptr;
}

}  // namespace ballast
