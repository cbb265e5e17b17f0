#ifndef BALLAST_CLIENT_PULL_CHANNEL_H_
#define BALLAST_CLIENT_PULL_CHANNEL_H_

#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

namespace ballast {

// A Pull's events on the client's side. Messages are bytes.
using PullClientReactor =
    grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// One Pull RPC, beside its reactor. Must live until the reactor's OnDone.
class PullRpc {
 public:
  virtual ~PullRpc() = default;
  // Ends the RPC with CANCELLED. Never blocks; no effect before StartCall and
  // after OnDone. From any thread.
  virtual void Cancel() = 0;
};

// The seam between a Pull and the network: one connection to a server.
// Implementations: gRPC, and tests/simulation. Thread-safe.
class PullChannel {
 public:
  virtual ~PullChannel() = default;
  // Creates a Pull and binds `reactor` to it; reactor->StartCall() opens it.
  virtual std::unique_ptr<PullRpc> Prepare(PullClientReactor* reactor) = 0;
};

// Pulls over a channel of gRPC.
std::shared_ptr<PullChannel> MakeGrpcPullChannel(
    std::shared_ptr<grpc::Channel> channel);

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_CHANNEL_H_
