#ifndef BALLAST_SERVER_STORAGE_STORE_CREDENTIALS_H_
#define BALLAST_SERVER_STORAGE_STORE_CREDENTIALS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

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

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORE_CREDENTIALS_H_
