#ifndef BALLAST_SERVER_STORAGE_STORE_ANSWERS_H_
#define BALLAST_SERVER_STORAGE_STORE_ANSWERS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// The status for `message`, with which a store failed to `action` (list, stat,
// read) `url`; says what to do. NOT_FOUND if there is no such bucket or object
// (`missing`, or the message says so). Otherwise UNAVAILABLE, also if the store
// refuses the credentials: nothing is known about the bytes then, so this is
// never a data fault. Pure.
absl::Status StoreFault(absl::string_view action, absl::string_view url,
                        absl::string_view message, bool missing);

// The field that distinguishes an object's versions, from the fields (name,
// value) of a store's answer: the ETag; if there is none, or the empty one
// (`""`) of servers that make none, the time of the last change. Empty if there
// is neither.
std::string VersionOfFields(
    absl::Span<const std::pair<std::string, std::string>> fields);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORE_ANSWERS_H_
