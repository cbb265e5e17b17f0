#ifndef BALLAST_SERVER_STORAGE_STORE_FAULT_H_
#define BALLAST_SERVER_STORAGE_STORE_FAULT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The status for `message`, with which a store failed to `action` (list, stat,
// read) `url`; says what to do. NOT_FOUND if there is no such bucket or object
// (`missing`, or the message says so). Otherwise UNAVAILABLE, also if the store
// refuses the credentials: nothing is known about the bytes then, so this is
// never a data fault. Pure.
absl::Status StoreFault(absl::string_view action, absl::string_view url,
                        absl::string_view message, bool missing);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORE_FAULT_H_
