#ifndef BALLAST_SERVER_CONFIG_CONFIG_DEFAULTS_H_
#define BALLAST_SERVER_CONFIG_CONFIG_DEFAULTS_H_

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/config/key_report.h"

namespace ballast {

// Sets every key that `keys` does not contain to the default that its comment
// in proto/config.proto names. An unknown profile leaves the model unchanged;
// the validation reports it.
void ApplyDefaults(const KeyReport& keys, v1::Config* config);

// Resolves relative paths against `directory`: sources[].media_root, .index and
// .lengths.path, model.tokenizer (unless `bytes`), serve.arena (unless `auto`
// or `off`), the models of balance.cost and cost_changes, security.tls.* and
// .tokens_file. sources[].path is left as a pattern for ExpandPath.
void ResolvePaths(absl::string_view directory, v1::Config* config);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_DEFAULTS_H_
