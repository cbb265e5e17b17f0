#include "client/connection_flags.h"

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxSeconds = 1'000'000;

// Adds a flag of whole seconds, at least `least`; `store` receives the value.
void AddSeconds(Command* command, const char* flag, const char* help,
                uint64_t least, const char* shown_default,
                std::function<void(absl::Duration)> store) {
  command
      ->AddWholeNumber(
          flag,
          [store = std::move(store)](uint64_t seconds) {
            store(absl::Seconds(seconds));
          },
          help, least, kMaxSeconds)
      .ShowDefault(shown_default);
}

}  // namespace

void AddFailoverFlags(Command* command, FailoverOptions* options) {
  AddSeconds(
      command, "--wait-for-server",
      "seconds to wait at the start for the first server to answer", 0, "60",
      [options](absl::Duration wait) { options->start_patience = wait; });
  AddSeconds(command, "--hang-after",
             "seconds without a byte from a server that may send, then the "
             "next one goes on; four times that for a block",
             1, "30", [options](absl::Duration silence) {
               options->silent_after = silence;
               options->slow_after = 4 * silence;
             });
  AddSeconds(
      command, "--give-up-after",
      "seconds without anything from any server, then the run ends", 1, "300",
      [options](absl::Duration patience) { options->patience = patience; });
}

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
