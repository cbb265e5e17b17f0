#ifndef BALLAST_SERVER_PULL_CALL_SIDE_H_
#define BALLAST_SERVER_PULL_CALL_SIDE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "proto/loader_service.pb.h"
#include "server/pull/stream_reactor.h"

namespace ballast {

// A call of LoaderService.Pull. Its messages are bytes, so that chunks are sent
// from where they are, without a copy.
using PullReactor =
    StreamReactor<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                  grpc::ByteBuffer>;

// The role that a call takes with its first message: a Pull (PullSide) or a
// lane of a Pull (LaneSide). Receives the events of the call, with no lock
// held.
class CallSide {
 public:
  virtual ~CallSide() = default;

  // The client's next message; not OK if it could not be parsed. Called by one
  // thread at a time.
  virtual void OnRequest(const absl::StatusOr<v1::PullRequest>& request) = 0;
  // The client sends no further message.
  virtual void OnClientFinished() = 0;
  // A write is over. May run concurrently with OnRequest.
  virtual void OnWritten() = 0;
  // The last event: the call must not be used afterwards. Returns whether
  // CallCount still counts the call.
  virtual bool OnDone() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_CALL_SIDE_H_
