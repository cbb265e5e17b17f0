#ifndef BALLAST_CLIENT_PULL_CHANNEL_H_
#define BALLAST_CLIENT_PULL_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/channel_security.h"
#include "common/mutex.h"

namespace ballast {

// The connections of one address's Pulls: one for the Pull itself, and one for
// each further lane. The lanes go to the server that the Pull has reached,
// since a name can resolve to several servers (a headless Service) and only
// that one knows the Pull. Thread-safe.
class PullChannels {
 public:
  // Does not connect yet. `count`: connections in all, 1 to kMaxLanes; other
  // numbers are clamped to this range.
  PullChannels(const std::string& address, const ChannelSecurity& security,
               uint32_t count);

  uint32_t count() const { return count_; }
  const std::shared_ptr<grpc::Channel>& main() const { return main_; }

  // The channels of the further lanes, count() - 1, to `peer`: the other end of
  // the Pull as gRPC names it ("ipv4:10.0.0.1:7070"). The last peer's channels
  // are kept for its next Pull.
  std::vector<std::shared_ptr<grpc::Channel>> LanesTo(const std::string& peer);

 private:
  const std::string address_;
  const ChannelSecurity security_;
  const uint32_t count_;
  const std::shared_ptr<grpc::Channel> main_;
  Mutex mutex_;
  std::string peer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<grpc::Channel>> lanes_ ABSL_GUARDED_BY(mutex_);
};

// A Pull's events on the client's side. Messages are bytes.
using PullClientReactor =
    grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// One Pull RPC, to call into; its events go to its reactor. Must live until the
// reactor's OnDone.
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

// The seam between a Pull and the network: a connection to a server, and the
// connections of its further lanes. Implementations: gRPC, and
// tests/simulation. Thread-safe.
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
