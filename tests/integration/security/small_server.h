#ifndef BALLAST_TESTS_INTEGRATION_SECURITY_SMALL_SERVER_H_
#define BALLAST_TESTS_INTEGRATION_SECURITY_SMALL_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "common/pem_files.h"
#include "proto/config.pb.h"
#include "server/serve/service/server.h"

namespace ballast {

// A server of a small job at one address, with the settings `security`.
absl::StatusOr<std::unique_ptr<LoaderServer>> StartSmallServer(
    const std::string& address, const v1::Security& security);

// Writes the identity's files and names them in `security`.
void SetIdentity(const TlsIdentity& identity, v1::Security* security);

// Attach's status for a client with the settings `security`.
absl::Status TryAttach(const std::string& address,
                       const ChannelSecurity& security);
// Fetches the first block of vision rank 0 and checks its checksum.
absl::Status TryPull(const std::string& address,
                     const ChannelSecurity& security);

}  // namespace ballast

#endif  // BALLAST_TESTS_INTEGRATION_SECURITY_SMALL_SERVER_H_
