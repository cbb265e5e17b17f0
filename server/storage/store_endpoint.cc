#include "server/storage/store_endpoint.h"

#include "absl/strings/strip.h"

namespace ballast {

StoreEndpoint SplitEndpoint(absl::string_view endpoint) {
  StoreEndpoint split;
  if (absl::ConsumePrefix(&endpoint, "http://")) split.scheme = "http";
  absl::ConsumePrefix(&endpoint, "https://");
  absl::ConsumeSuffix(&endpoint, "/");
  split.authority = std::string(endpoint);
  return split;
}

}  // namespace ballast
