#ifndef BALLAST_SERVER_SERVICE_PEER_CALLER_H_
#define BALLAST_SERVER_SERVICE_PEER_CALLER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/channel_security.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// The seam to the other servers of a job.
class PeerCaller {
 public:
  virtual ~PeerCaller() = default;

  // LoaderService.Attach without a role or an expected fingerprint. Blocks for
  // two seconds at most. Called from one thread. Errors: CANCELLED, and those
  // of the call.
  virtual absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) = 0;

  // Ends an Attach that blocks and every later one. From any thread.
  virtual void Cancel() = 0;
};

// Over gRPC, secured as `security` says.
std::unique_ptr<PeerCaller> MakeGrpcPeerCaller(ChannelSecurity security);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PEER_CALLER_H_
