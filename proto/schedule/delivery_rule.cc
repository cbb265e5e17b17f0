#include "proto/schedule/delivery_rule.h"

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"

namespace ballast {

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
