#include "proto/schedule/module.h"

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// Never destroyed.
std::vector<ModuleKind>& MutableKinds() {
  static auto* const kinds = new std::vector<ModuleKind>{
      {v1::MODULE_VISION, "vision", Media::kImages, "patches"},
      {v1::MODULE_AUDIO, "audio", Media::kRows, "frames"},
      {v1::MODULE_LANGUAGE, "language", Media::kText, "tokens"},
  };
  return *kinds;
}

}  // namespace

const std::vector<ModuleKind>& ModuleKinds() { return MutableKinds(); }

void AddRowsModule(absl::string_view name, absl::string_view unit) {
  std::vector<ModuleKind>& kinds = MutableKinds();
  kinds.insert(kinds.end() - 1, {v1::MODULE_OTHER, name, Media::kRows, unit});
}

absl::string_view ModuleName(v1::Module module) {
  for (const ModuleKind& kind : ModuleKinds()) {
    if (kind.module == module) return kind.name;
  }
  return "unspecified";
}

absl::string_view CostUnit(v1::Module module) {
  for (const ModuleKind& kind : ModuleKinds()) {
    if (kind.module == module) return kind.unit;
  }
  return "units";
}

std::optional<v1::Module> ParseModule(absl::string_view name) {
  for (const ModuleKind& kind : ModuleKinds()) {
    if (kind.name == name) return kind.module;
  }
  return std::nullopt;
}

std::vector<std::string> ModuleNames() {
  std::vector<std::string> names;
  for (const ModuleKind& kind : ModuleKinds()) names.emplace_back(kind.name);
  return names;
}

std::vector<double> SumOfModules(
    const v1::MicroBatchSchedule& columns,
    const google::protobuf::RepeatedField<double>& (
        v1::ModuleSchedule::*loads)() const) {
  if (columns.modules_size() < 2) return {};
  std::vector<double> sums((columns.modules(0).*loads)().size());
  for (const v1::ModuleSchedule& module : columns.modules()) {
    const auto& own = (module.*loads)();
    if (static_cast<size_t>(own.size()) != sums.size()) return {};
    for (int r = 0; r < own.size(); ++r) sums[r] += own[r];
  }
  return sums;
}

const v1::ModuleSchedule* FindModule(const v1::MicroBatchSchedule& micro_batch,
                                     v1::Module module) {
  for (const v1::ModuleSchedule& entry : micro_batch.modules()) {
    if (entry.module() == module) return &entry;
  }
  return nullptr;
}

absl::StatusOr<DeliveryRule> GetRule(const v1::Job& job, v1::Module module) {
  if (job.delivery() == v1::DELIVERY_UNSPECIFIED) {
    return absl::InvalidArgumentError("job: delivery is not set");
  }
  for (const v1::Job::ModuleSize& size : job.modules()) {
    if (size.module() != module) continue;
    DeliveryRule rule(job.delivery());
    if (job.delivery() != v1::DELIVERY_HYBRID) return rule;
    const auto& servers = size.server_of_rank();
    if (!servers.empty() &&
        static_cast<uint32_t>(servers.size()) != size.dp()) {
      return absl::InvalidArgumentError(
          absl::StrCat("job: server_of_rank of ", ModuleName(module), " has ",
                       servers.size(), " entries, wanted one for each of ",
                       size.dp(), " ranks"));
    }
    rule.server_of_rank.assign(servers.begin(), servers.end());
    return rule;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("module ", ModuleName(module), " is not configured"));
}

absl::StatusOr<DeliveryRule> GetRule(const v1::Job& job, const v1::Role& role) {
  switch (role.delivery()) {
    case v1::DELIVERY_UNSPECIFIED:
      return GetRule(job, role.module());
    case v1::DELIVERY_DIRECT:
      return DeliveryRule(v1::DELIVERY_DIRECT);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          ModuleName(role.module()), " rank ", role.dp_rank(), " asks for ",
          v1::Delivery_Name(role.delivery()),
          ", wanted DELIVERY_DIRECT or none: other deliveries are for the "
          "configuration to choose"));
  }
}

}  // namespace ballast
