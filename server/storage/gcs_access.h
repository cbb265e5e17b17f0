#ifndef BALLAST_SERVER_STORAGE_GCS_ACCESS_H_
#define BALLAST_SERVER_STORAGE_GCS_ACCESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/storage/store_credentials.h"
#include "server/storage/store_endpoint.h"

namespace ballast {

// What a client of Google Cloud Storage is made of.
struct GcsAccess {
  enum class Kind {
    kAnonymous,
    // As Google's libraries find them: a file, or the role of the machine.
    kDefault,
    // `key` is a service account's.
    kServiceAccount,
  };
  Kind kind = Kind::kDefault;
  std::string key;  // the text of the JSON file; never printed
  StoreEndpoint endpoint;
};

// The access that a loaded configuration names. `get` looks up variables.
// Reads the file of the credentials, and of those of the environment whether
// they are there. Errors: FAILED_PRECONDITION (none are there, or the file is
// no key of a service account), without any secret; as ReadSmallFile.
absl::StatusOr<GcsAccess> ResolveGcsAccess(const v1::Storage::Gcs& gcs,
                                           const GetVariable& get);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_GCS_ACCESS_H_
