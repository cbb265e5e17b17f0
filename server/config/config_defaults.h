#ifndef BALLAST_SERVER_CONFIG_CONFIG_DEFAULTS_H_
#define BALLAST_SERVER_CONFIG_CONFIG_DEFAULTS_H_

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/config/key_report.h"

namespace ballast {

// Gives every key that `keys` does not hold the default that its comment in
// proto/config.proto names. An unknown profile leaves the model as it is: the
// check of the configuration reports it.
void ApplyDefaults(const KeyReport& keys, v1::Config* config);

// Makes every path start from `directory` instead of the configuration's place:
// sources[].media_root, .index and .lengths.path, model.tokenizer (unless it is
// `bytes`), security.tls.* and .tokens_file. sources[].path stays the pattern
// that it is, for ExpandPath.
void ResolvePaths(absl::string_view directory, v1::Config* config);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_DEFAULTS_H_
