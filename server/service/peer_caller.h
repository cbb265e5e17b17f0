#ifndef BALLAST_SERVER_SERVICE_PEER_CALLER_H_
#define BALLAST_SERVER_SERVICE_PEER_CALLER_H_

#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "absl/status/statusor.h"
#include "common/channel_security.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// A separate connection to another server of the job, made at the first call.
// Answers have at most `most_bytes`; longer ones end with RESOURCE_EXHAUSTED.
// Errors: as ChannelCredentialsFor.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakePeerChannel(
    const std::string& address, const ChannelSecurity& security,
    int most_bytes = 4 << 20);

// Interface to the other servers of a job.
class PeerCaller {
 public:
  virtual ~PeerCaller() = default;

  // Calls LoaderService.Attach without a role or an expected fingerprint.
  // Blocks for at most two seconds. For one thread. Errors: CANCELLED; as the
  // call.
  virtual absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) = 0;

  // Ends an Attach in progress and every later one. May be called from any
  // thread.
  virtual void Cancel() = 0;
};

// Makes calls over gRPC, secured by `security`.
std::unique_ptr<PeerCaller> MakeGrpcPeerCaller(ChannelSecurity security);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PEER_CALLER_H_
