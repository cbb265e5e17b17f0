#ifndef BALLAST_PROTO_SCHEDULE_MODULE_H_
#define BALLAST_PROTO_SCHEDULE_MODULE_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The name of a module in YAML, JSON and messages: "vision" or "language";
// "unspecified" for any other value.
absl::string_view ModuleName(v1::Module module);

// The module of that name, or nullopt.
std::optional<v1::Module> ParseModule(absl::string_view name);

// The module's columns in a micro-batch, or null if it is not configured.
const v1::ModuleSchedule* FindModule(const v1::MicroBatchSchedule& micro_batch,
                                     v1::Module module);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_MODULE_H_
