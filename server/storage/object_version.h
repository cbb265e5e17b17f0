#ifndef BALLAST_SERVER_STORAGE_OBJECT_VERSION_H_
#define BALLAST_SERVER_STORAGE_OBJECT_VERSION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace ballast {

// What tells an object's versions apart, of the fields that a store answers,
// (name, value): the ETag; if there is none, or an empty one as of servers that
// make none (`""`), the time of the last change. Empty if there is neither.
std::string VersionOfFields(
    absl::Span<const std::pair<std::string, std::string>> fields);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_OBJECT_VERSION_H_
