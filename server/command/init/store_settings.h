#ifndef BALLAST_SERVER_COMMAND_INIT_STORE_SETTINGS_H_
#define BALLAST_SERVER_COMMAND_INIT_STORE_SETTINGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/command/init/seen.h"

namespace ballast {

// The store's section of `storage` as YAML, "s3: {endpoint: …}"; "" if all is
// as by default. Pure.
std::string StoreSettingsText(const SeenStore& store);

// The section `storage` that a configuration in `config_folder` has with these
// settings. Errors: INVALID_ARGUMENT (they would be refused).
absl::StatusOr<v1::Storage> StoreSettings(const SeenStore& store,
                                          const std::string& config_folder);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_STORE_SETTINGS_H_
