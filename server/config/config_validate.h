#ifndef BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_
#define BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net_address.h"
#include "proto/config.pb.h"
#include "server/settings/key_report.h"

namespace ballast {

// Parses an address as the configuration writes it: ParseNetAddress, but the
// path of a Unix socket is absolute. Errors: INVALID_ARGUMENT, "found ...;
// wanted ...".
absl::StatusOr<NetAddress> ParseConfiguredAddress(absl::string_view text);

// Checks that a server with the settings `security` may listen at `address`,
// parsed from `text`. Errors: INVALID_ARGUMENT, "found ...; wanted ...", naming
// the keys to set.
absl::Status CheckExposure(const NetAddress& address, absl::string_view text,
                           const v1::Security& security);

// Checks serve.http in the same way, which is served over TLS if there is
// security.tls. On a loopback address it may ask for tokens without TLS: who
// can read them there may read the server's memory.
absl::Status CheckHttpExposure(const NetAddress& address,
                               absl::string_view text,
                               const v1::Security& security);

// Whether `name` may be security.job: ASCII letters, digits, _, . and - alone.
bool IsJobName(absl::string_view name);

// Adds to `report` all faults of a configuration beyond the type and range of
// single values: missing keys (CheckKeys), and values that contradict each
// other. `config`
// has its defaults; `report` knows which keys the file contains. Keys that
// `report` already lists as faulty are not checked again. Accesses no file.
void ValidateConfig(const v1::Config& config, KeyReport* report);

// Checks of single sections.
void ValidateBalance(const v1::Config& config, KeyReport* report);
void ValidateBatch(const v1::Config& config, KeyReport* report);
void ValidateOrder(const v1::Config& config, KeyReport* report);
void ValidateSources(const v1::Config& config, KeyReport* report);
void ValidateModel(const v1::Model& model, KeyReport* report);
void ValidateModelFamily(const v1::Model& model, KeyReport* report);
void ValidatePacking(const v1::Config& config, KeyReport* report);
void ValidatePairs(const v1::Config& config, KeyReport* report);
void ValidatePlacement(const v1::Config& config, KeyReport* report);
void ValidateAudio(const v1::Config& config, KeyReport* report);
void ValidateStorage(const v1::Config& config, KeyReport* report);
void ValidateTopology(const v1::Config& config, KeyReport* report);
void ValidateVideo(const v1::Model& model, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_VALIDATE_H_
