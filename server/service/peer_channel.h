#ifndef BALLAST_SERVER_SERVICE_PEER_CHANNEL_H_
#define BALLAST_SERVER_SERVICE_PEER_CHANNEL_H_

#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "absl/status/statusor.h"
#include "common/channel_security.h"

namespace ballast {

// A separate connection to another server of the job, made at the first call.
// Answers have at most `most_bytes`; longer ones end with RESOURCE_EXHAUSTED.
// Errors: as ChannelCredentialsFor.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakePeerChannel(
    const std::string& address, const ChannelSecurity& security,
    int most_bytes = 4 << 20);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PEER_CHANNEL_H_
