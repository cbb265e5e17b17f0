#include "client/security_flags.h"

namespace ballast {

void AddSecurityFlags(Command* command, SecurityFiles* files) {
  command
      ->AddText("--tls-ca", &files->tls_ca,
                "TLS to servers on TCP: PEM file of the CAs that sign their "
                "certificates")
      .TypeName("FILE")
      .FromEnvironment("BALLAST_TLS_CA");
  command
      ->AddText("--tls-cert", &files->tls_cert,
                "PEM file of the client's certificate, with --tls-key")
      .TypeName("FILE")
      .FromEnvironment("BALLAST_TLS_CERT");
  command->AddText("--tls-key", &files->tls_key, "PEM file of its key")
      .TypeName("FILE")
      .FromEnvironment("BALLAST_TLS_KEY");
  command
      ->AddText("--tls-server-name", &files->tls_server_name,
                "name in the servers' certificates, where it is not the "
                "host of the address")
      .TypeName("NAME")
      .FromEnvironment("BALLAST_TLS_SERVER_NAME");
  command
      ->AddText("--token-file", &files->token_file,
                "file whose first line is the bearer token that the servers "
                "want")
      .TypeName("FILE")
      .FromEnvironment("BALLAST_TOKEN_FILE");
}

}  // namespace ballast
