#ifndef BALLAST_SERVER_SERVE_RELAY_RELAYED_CONNECTION_H_
#define BALLAST_SERVER_SERVE_RELAY_RELAYED_CONNECTION_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/small_file.h"
#include "server/serve/relay/relayed_peer.h"
#include "server/serve/relay/work_budgets.h"

namespace ballast {

// One client's connection, from its socket to gRPC and back, within the bounds
// of its peer (relay.h). Every operation under way holds a reference to it; all
// run on the socket's strand.
class RelayedConnection {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  struct Settings {
    RelayedPeer peer;
    // Of the name of the connection to gRPC (MakeRelayedPair).
    std::string name_prefix;
    uint64_t number = 0;
    // Of all connections' places; given back when the connection is gone.
    std::shared_ptr<void> place;
    std::shared_ptr<WorkBudgets> budgets;
    std::shared_ptr<OpenCalls> calls;
    // Frames are read and held back (FrameMeter).
    bool is_metered = true;
    std::shared_ptr<boost::asio::ssl::context> tls;  // null: none
    // Gives gRPC its end.
    std::function<void(OwnedFd end)> pass;
    // The connection was closed for this reason.
    std::function<void(const std::string& why)> on_expelled;
    // It has sent a whole frame, or is gone. At most twice.
    std::function<void()> on_spoken;
  };

  // The functions of `settings` must work as long as `socket`'s io_context.
  static std::shared_ptr<RelayedConnection> Create(Socket socket,
                                                   Settings settings);
  virtual ~RelayedConnection() = default;

  // On the socket's strand.
  virtual void Start() = 0;
  // From any thread: closes it if it has sent no whole frame.
  virtual void GiveWay() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_RELAYED_CONNECTION_H_
