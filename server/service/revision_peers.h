#ifndef BALLAST_SERVER_SERVICE_REVISION_PEERS_H_
#define BALLAST_SERVER_SERVICE_REVISION_PEERS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/channel_security.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// Interface to the RevisionService of the job's other servers. Thread-safe.
class RevisionPeers {
 public:
  virtual ~RevisionPeers() = default;
  // Both block for `patience` at most. Errors: as the call.
  virtual absl::StatusOr<v1::GetRevisionsResponse> GetRevisions(
      const std::string& address, const v1::GetRevisionsRequest& request,
      absl::Duration patience) = 0;
  virtual absl::StatusOr<v1::AgreeResponse> Agree(
      const std::string& address, const v1::AgreeRequest& request,
      absl::Duration patience) = 0;
  // Ends the calls in progress, and every later one, with CANCELLED.
  virtual void Cancel() = 0;
};

// Asks all of `addresses` at once, and calls `each` with every answer, one at a
// time. Blocks for `patience` for every 16 of them at most. Returns the first
// error, of a call or of `each`, in the order of `addresses`, with the address.
absl::Status AskAll(
    RevisionPeers* peers, const std::vector<std::string>& addresses,
    const v1::AgreeRequest& request, absl::Duration patience,
    const std::function<absl::Status(const std::string& address,
                                     const v1::AgreeResponse& answer)>& each);

// Makes calls over gRPC, secured by `security`.
std::unique_ptr<RevisionPeers> MakeGrpcRevisionPeers(ChannelSecurity security);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISION_PEERS_H_
