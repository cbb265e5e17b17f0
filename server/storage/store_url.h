#ifndef BALLAST_SERVER_STORAGE_STORE_URL_H_
#define BALLAST_SERVER_STORAGE_STORE_URL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A path into a store: "s3://bucket/folder/name.tar".
struct StoreUrl {
  std::string scheme;  // s3, gs, abfs or file
  // "bucket/folder/name.tar"; for `file` the absolute path.
  std::string path;
};

// Reads "SCHEME://BUCKET/KEY"; the key may be empty. Errors: INVALID_ARGUMENT
// (an unknown scheme, no bucket, a user name or password, `.` or `..` or an
// empty name between slashes), naming the path. Pure.
absl::StatusOr<StoreUrl> ParseStoreUrl(absl::string_view url);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORE_URL_H_
