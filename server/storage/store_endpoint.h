#ifndef BALLAST_SERVER_STORAGE_STORE_ENDPOINT_H_
#define BALLAST_SERVER_STORAGE_STORE_ENDPOINT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// An endpoint of the configuration, in the parts that clients of stores take.
struct StoreEndpoint {
  std::string scheme = "https";
  std::string authority;  // "HOST:PORT"; "": the store's own
};

// Splits "http://HOST:PORT", "https://HOST:PORT" or "", with or without a slash
// at its end.
StoreEndpoint SplitEndpoint(absl::string_view endpoint);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORE_ENDPOINT_H_
