#include "server/serve/security/tls_context.h"

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

namespace ssl = boost::asio::ssl;

absl::Status Refused(absl::string_view what,
                     const boost::system::error_code& error) {
  return absl::InvalidArgumentError(
      absl::StrCat("TLS refuses ", what, ": ", error.message()));
}

int SelectHttp2(SSL* /*ssl*/, const unsigned char** chosen,
                unsigned char* chosen_bytes, const unsigned char* offered,
                unsigned int offered_bytes, void* /*arg*/) {
  // A list of names, each with a byte of its length before it.
  for (unsigned int i = 0; i < offered_bytes; i += 1 + offered[i]) {
    if (offered[i] != 2 || i + 2 >= offered_bytes) continue;
    if (std::memcmp(offered + i + 1, "h2", 2) != 0) continue;
    *chosen = offered + i + 1;
    *chosen_bytes = 2;
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ssl::context>> MakeTlsContext(
    const TlsMaterial& material, TlsProtocol protocol) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  if (protocol == TlsProtocol::kHttp2) {
    SSL_CTX_set_alpn_select_cb(native, &SelectHttp2, nullptr);
  }
  boost::system::error_code error;
  context->use_certificate_chain(boost::asio::buffer(material.identity.cert),
                                 error);
  if (error) return Refused("the certificate", error);
  context->use_private_key(boost::asio::buffer(material.identity.key),
                           ssl::context::pem, error);
  if (error) return Refused("the key", error);
  if (material.client_ca.empty()) return context;
  context->add_certificate_authority(boost::asio::buffer(material.client_ca),
                                     error);
  if (!error) {
    context->set_verify_mode(
        ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error) return Refused("client_ca", error);
  return context;
}

}  // namespace ballast
