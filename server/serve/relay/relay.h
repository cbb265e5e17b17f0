#ifndef BALLAST_SERVER_SERVE_RELAY_RELAY_H_
#define BALLAST_SERVER_SERVE_RELAY_RELAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "common/small_file.h"
#include "server/serve/relay/listen_sockets.h"
#include "server/serve/relay/work_budgets.h"
#include "server/serve/security/server_security.h"

namespace ballast {

// The connections that a server may have, over all its addresses.
// Thread-safe.
class ConnectionPlaces {
 public:
  // `most` for all peers, of which TCP gets three quarters and one peer half.
  explicit ConnectionPlaces(size_t most) : most_(most) {}

  // As many as fit the process's descriptors, which it raises the limit of: a
  // connection takes three, and half of them are for data files.
  static size_t OfDescriptors();

  // A place for a connection of `peer`; it is free again once the result is
  // destroyed, which may be after this. Errors: RESOURCE_EXHAUSTED, with the
  // bound.
  absl::StatusOr<std::shared_ptr<void>> Take(const std::string& peer,
                                             bool is_unix);

  size_t most() const { return most_; }
  size_t open() const;

 private:
  struct Counts {
    mutable Mutex mutex;
    size_t open ABSL_GUARDED_BY(mutex) = 0;
    size_t tcp ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, size_t> by_peer ABSL_GUARDED_BY(mutex);
  };

  const size_t most_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

// The peer of a call, of the name that gRPC has for it behind a relay:
// "ipv4:10.0.0.1:4711", or "unix:4711" for process 4711 at a Unix socket. Other
// names stay. Pure.
std::string RelayedPeer(absl::string_view grpc_peer);

// Accepts connections at one address in front of gRPC and relays their bytes,
// within bounds for each peer (decision 117). A peer is an IP address, of IPv6
// the first half, or a process at a Unix socket. gRPC gets one end of a pair of
// Unix sockets for each connection, once the client's first bytes are there.
//
// What is bounded: connections (ConnectionPlaces); those that have sent no whole
// frame, of which the oldest gives way; the time until then, 20 s; bytes that
// are held back (FrameMeter); the work that frames, TLS handshakes and new
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

  struct Figures {
    uint64_t accepted = 0;
    uint64_t refused = 0;   // no place
    uint64_t expelled = 0;  // against the bounds on frames, or silent
    uint64_t reopened = 0;  // times that the address was opened again
  };
  Figures figures() const;

 private:
  struct Core;
  explicit Relay(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_RELAY_H_
