#ifndef BALLAST_CLIENT_PULL_CHANNEL_H_
#define BALLAST_CLIENT_PULL_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include "client/pull_channels.h"

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
  // The server's end of the connection, as gRPC names it
  // ("ipv4:10.0.0.1:7070"). Known once a message has arrived.
  virtual std::string peer() const = 0;
};

// The seam between a Pull and the network: a connection to a server, and those
// of its further lanes. Implementations: gRPC, and tests/simulation.
// Thread-safe.
class PullChannel {
 public:
  virtual ~PullChannel() = default;
  // Creates a Pull and binds `reactor` to it; reactor->StartCall() opens it.
  virtual std::unique_ptr<PullRpc> Prepare(PullClientReactor* reactor) = 0;
  // Lanes with the Pull itself, at least 1.
  virtual uint32_t lanes() const = 0;
  // The connections of the further lanes, lanes() - 1, to `peer`: the server
  // that the Pull has reached.
  virtual std::vector<std::shared_ptr<PullChannel>> LanesTo(
      const std::string& peer) = 0;
};

// Pulls over channels of gRPC.
std::shared_ptr<PullChannel> MakeGrpcPullChannel(
    std::shared_ptr<PullChannels> channels);

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_CHANNEL_H_
