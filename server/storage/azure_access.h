#ifndef BALLAST_SERVER_STORAGE_AZURE_ACCESS_H_
#define BALLAST_SERVER_STORAGE_AZURE_ACCESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/storage/store_credentials.h"

namespace ballast {

// What a client of Azure Blob Storage is made of.
struct AzureAccess {
  enum class Kind {
    kAnonymous,
    // `secret` is the account's key.
    kKey,
    // `secret` is a shared access signature.
    kSas,
    // A service principal's variables, which the library reads.
    kPrincipal,
    // The role of the machine or pod.
    kInstance,
  };
  Kind kind = Kind::kInstance;
  std::string account;
  std::string secret;  // never printed
  std::string scheme = "https";
  // Where the account's name stands in front of the host, it begins with a dot;
  // otherwise the name stands in the path.
  std::string blob_authority = ".blob.core.windows.net";
  std::string dfs_authority = ".dfs.core.windows.net";
};

// The access that a connection string names, "AccountName=…;AccountKey=…", as
// Azure's portal shows them. FAILED_PRECONDITION, naming `where` it is from and
// what is wrong, without any secret.
absl::StatusOr<AzureAccess> ParseConnectionString(absl::string_view where,
                                                  absl::string_view text);

// The access that a loaded configuration names. `get` looks up variables.
// Reads the file of the credentials. Errors: FAILED_PRECONDITION (no account,
// no credentials, a connection string of another account), without any secret;
// as ReadSmallFile.
absl::StatusOr<AzureAccess> ResolveAzureAccess(const v1::Storage::Azure& azure,
                                               const GetVariable& get);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_AZURE_ACCESS_H_
