#ifndef BALLAST_SERVER_HTTP_HTTP_CONNECTION_H_
#define BALLAST_SERVER_HTTP_HTTP_CONNECTION_H_

#include <memory>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include "server/http/http_server.h"

namespace ballast {

// Answers one request at `socket` by `handler` and closes the connection,
// within the bounds of HttpServer. With `tls`, which may be null, over TLS; who
// then asks in plain HTTP is told so. Returns at once: the socket's executor
// does the work, one piece after the other. `handler` is not owned. Releases
// `place` once the connection is closed.
void ServeConnection(boost::asio::ip::tcp::socket socket,
                     std::shared_ptr<boost::asio::ssl::context> tls,
                     const HttpServer::Handler* handler,
                     std::shared_ptr<void> place);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_HTTP_CONNECTION_H_
