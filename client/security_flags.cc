#include "client/security_flags.h"

namespace ballast {

void AddSecurityFlags(CLI::App* app, SecurityFiles* files) {
  app->add_option("--tls-ca", files->tls_ca,
                  "TLS to servers on TCP: PEM file of the CAs that sign their "
                  "certificates")
      ->type_name("FILE")
      ->envname("BALLAST_TLS_CA");
  app->add_option("--tls-cert", files->tls_cert,
                  "PEM file of the client's certificate, with --tls-key")
      ->type_name("FILE")
      ->envname("BALLAST_TLS_CERT");
  app->add_option("--tls-key", files->tls_key, "PEM file of its key")
      ->type_name("FILE")
      ->envname("BALLAST_TLS_KEY");
  app->add_option("--tls-server-name", files->tls_server_name,
                  "name in the servers' certificates, where it is not the "
                  "host of the address")
      ->type_name("NAME")
      ->envname("BALLAST_TLS_SERVER_NAME");
  app->add_option("--token-file", files->token_file,
                  "file whose first line is the bearer token that the servers "
                  "want")
      ->type_name("FILE")
      ->envname("BALLAST_TOKEN_FILE");
}

}  // namespace ballast
