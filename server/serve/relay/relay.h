#ifndef BALLAST_SERVER_SERVE_RELAY_RELAY_H_
#define BALLAST_SERVER_SERVE_RELAY_RELAY_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/small_file.h"
#include "server/serve/relay/connection_places.h"
#include "server/serve/relay/listen_sockets.h"
#include "server/serve/relay/work_budgets.h"
#include "server/serve/security/server_security.h"

namespace ballast {

// Accepts connections at one address in front of gRPC and relays their bytes,
// within bounds for each peer (decision 117). A peer is an IP address, of IPv6
// the first half, or a process at a Unix socket. gRPC gets one end of a pair of
// Unix sockets for each connection, once the client's first bytes are there.
//
// What is bounded: connections (ConnectionPlaces); those that have sent no
// whole frame, of which the oldest gives way; the time until then, 20 s; bytes
// that are held back (FrameMeter); the work that frames, TLS handshakes and new
// connections of a peer mean (WorkBudgets): a peer that sends more is read more
// slowly; calls of a peer (OpenCalls): beyond them it is not read until some
// have ended, and closed after 20 s. With a client_ca, bytes are metered only
// until the handshake is done.
//
// A failed accept never ends the listening: without descriptors it pauses, and
// a listening socket that has failed is opened again. The relay also connects
// to its own address every 2 s. If it does not get there for 10 s, it opens the
// socket again, and if that fails for as long, calls `on_lost`. Thread-safe.
class Relay {
 public:
  struct Settings {
    std::shared_ptr<const LiveTlsMaterial> tls;  // null, or a Unix socket: none
    std::shared_ptr<ConnectionPlaces> places;
    std::shared_ptr<WorkBudgets> budgets;
    std::shared_ptr<OpenCalls> calls;
    // Gives gRPC its end of a new connection.
    std::function<void(OwnedFd end)> pass;
    // Called once, from a thread of the relay's, with the reason.
    std::function<void(const absl::Status& why)> on_lost;
  };

  // Starts to accept at `sockets`. Errors: RESOURCE_EXHAUSTED (no threads);
  // INVALID_ARGUMENT (OpenSSL refuses settings.tls).
  static absl::StatusOr<std::unique_ptr<Relay>> Start(ListenSockets sockets,
                                                      Settings settings);

  // Closes all connections and the sockets, and removes a Unix socket's file.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Closes the sockets; connections stay.
  void StopAccepting();

 private:
  struct Core;
  explicit Relay(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_RELAY_H_
