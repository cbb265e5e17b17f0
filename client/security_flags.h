#ifndef BALLAST_CLIENT_SECURITY_FLAGS_H_
#define BALLAST_CLIENT_SECURITY_FLAGS_H_

#include <CLI/CLI.hpp>

#include "common/channel_security.h"

namespace ballast {

// --tls-ca, --tls-cert, --tls-key, --tls-server-name and --token-file, each
// also from the environment (BALLAST_TLS_CA and so on), for `files`, which must
// outlive `app`.
void AddSecurityFlags(CLI::App* app, SecurityFiles* files);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SECURITY_FLAGS_H_
