#ifndef BALLAST_SERVER_SERVICE_MEETING_FORWARDER_H_
#define BALLAST_SERVER_SERVICE_MEETING_FORWARDER_H_

#include <memory>
#include <set>
#include <string>

#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/channel_security.h"
#include "common/mutex.h"
#include "proto/loader_service.grpc.pb.h"
#include "server/pull/pull_limits.h"

namespace ballast {

// Forwards Rendezvous calls to the server where all groups of the job meet, so
// that ranks of one group meet whichever servers they ask. Thread-safe. Must
// outlive the gRPC server.
class MeetingForwarder {
 public:
  // `address` is the server where groups meet. `fingerprint` is the hash of
  // this server's fingerprint, which the other server compares with its own.
  // `calls` counts the open calls; it is not owned and must outlive this.
  MeetingForwarder(std::string address, const ChannelSecurity& security,
                   std::string fingerprint, CallCount* calls);
  ~MeetingForwarder();

  // Never returns null. The call ends with the other server's answer, at its
  // own deadline, or when the client leaves; or with UNAVAILABLE, naming the
  // address, if the other server cannot be reached.
  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context,
                                 const v1::RendezvousRequest& request,
                                 v1::RendezvousResponse* response);

  // Ends all calls, present and future, with UNAVAILABLE. Does not wait.
  void Drain();

 private:
  class Call;

  absl::Status Annotated(const grpc::Status& status) const;
  void Forget(Call* call);

  const std::string address_;
  const std::string fingerprint_;
  CallCount* const calls_;
  absl::Status cannot_connect_;
  std::unique_ptr<v1::LoaderService::Stub> stub_;  // null if cannot_connect_
  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Call*> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_MEETING_FORWARDER_H_
