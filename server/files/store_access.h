#ifndef BALLAST_SERVER_FILES_STORE_ACCESS_H_
#define BALLAST_SERVER_FILES_STORE_ACCESS_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"

namespace ballast {

// An endpoint of the configuration, in the parts that clients of stores take.
struct StoreEndpoint {
  std::string scheme = "https";
  std::string authority;  // "HOST:PORT"; "": the store's own
};

// Splits "http://HOST:PORT", "https://HOST:PORT" or "", with or without a slash
// at its end.
StoreEndpoint SplitEndpoint(absl::string_view endpoint);

// Keys of an S3 store. Never printed.
struct StoreKeys {
  std::string id;
  std::string secret;
  std::string session_token;  // may be empty
};

// The keys in environment variables, which `get` looks up (nullopt: not set).
// FAILED_PRECONDITION if one is missing, naming the variables.
using GetVariable =
    std::function<std::optional<std::string>(const std::string& name)>;
absl::StatusOr<StoreKeys> KeysOfEnvironment(const GetVariable& get);

// The keys in the section [default] of a file like ~/.aws/credentials, whose
// text is `text`. FAILED_PRECONDITION naming `path` and what is missing.
absl::StatusOr<StoreKeys> ParseKeysFile(absl::string_view path,
                                        absl::string_view text);

// `message` with every occurrence of a key replaced by ***.
std::string WithoutKeys(absl::string_view message, const StoreKeys& keys);

// The parameters of a client of Azure Blob Storage.
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
  // Begins with a dot if the account's name precedes the host; otherwise the
  // account's name is in the path.
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

// The parameters of a client of Google Cloud Storage.
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
// Reads the file of the credentials; for credentials of the environment, only
// checks whether they exist. Errors: FAILED_PRECONDITION (there are none, or
// the file is not a service account's key), without any secret; as
// ReadSmallFile.
absl::StatusOr<GcsAccess> ResolveGcsAccess(const v1::Storage::Gcs& gcs,
                                           const GetVariable& get);

// The status for `message`, with which a store failed to `action` (list, stat,
// read) `url`; says what to do. NOT_FOUND if there is no such bucket or object
// (`missing`, or the message says so). Otherwise UNAVAILABLE, also if the store
// refuses the credentials: nothing is known about the bytes then, so this is
// never a data fault. Pure.
absl::Status StoreFault(absl::string_view action, absl::string_view url,
                        absl::string_view message, bool missing);

// The field that distinguishes an object's versions, from the fields (name,
// value) of a store's answer: the ETag; without one, or with the empty one
// (`""`) of servers that make none, the time of the last change. Empty if the
// answer has neither.
std::string VersionOfFields(
    absl::Span<const std::pair<std::string, std::string>> fields);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_STORE_ACCESS_H_
