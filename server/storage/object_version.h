#ifndef BALLAST_SERVER_STORAGE_OBJECT_VERSION_H_
#define BALLAST_SERVER_STORAGE_OBJECT_VERSION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace ballast {

// The field that distinguishes an object's versions, from the fields (name,
// value) of a store's answer: the ETag; if there is none, or the empty one
// (`""`) of servers that make none, the time of the last change. Empty if there
// is neither.
std::string VersionOfFields(
    absl::Span<const std::pair<std::string, std::string>> fields);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_OBJECT_VERSION_H_
