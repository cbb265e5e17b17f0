#include "client/ballastctl/commands.h"

#include <algorithm>
#include <cstdint>
#include <iostream>

#include "common/status_macros.h"

namespace ballast {

namespace {

constexpr absl::Duration kBetween = absl::Milliseconds(200);

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::Status AwaitHealth(const Connect& connect, absl::Duration wait,
                         Clock* clock, std::ostream* out, Wanted wanted) {
  const char* found = "serving";
  const absl::Time start = clock->Now();
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const auto client, connect());
    const absl::Status status = client->CheckHealth();
    if (status.ok()) break;
    if (wanted == Wanted::kAlive && AnswersWithoutServing(status)) {
      found = "not serving";
      break;
    }
    const absl::Duration left = wait - (clock->Now() - start);
    if (!MayPass(status) || left <= absl::ZeroDuration()) return status;
    clock->NewSleeper()->Sleep(std::min(kBetween, left));
  }
  *out << found << "\n";
  return Flush(*out);
}

void AddHealth(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto wait = std::make_shared<uint64_t>(0);
  auto alive = std::make_shared<bool>(false);
  Command* command = line->AddCommand(
      line->program(), "health",
      "Asks whether a server serves, by gRPC health checking, which needs no\n"
      "token. Prints `serving` and exits with status 0, or says why not and\n"
      "exits with 1: for probes, where TLS or a Unix socket keeps others out.\n"
      "With --alive a server that answers `not serving` also exits with 0.",
      "  ballastctl --server unix:/run/ballast/a.sock health\n"
      "  ballastctl --server 127.0.0.1:7070 health --wait 60\n"
      "  ballastctl --server 127.0.0.1:7070 health --alive",
      [server, wait, alive]() -> absl::Status {
        return AwaitHealth([server] { return GetClient(*server); },
                           absl::Seconds(static_cast<int64_t>(*wait)),
                           Clock::Real(), &std::cout,
                           *alive ? Wanted::kAlive : Wanted::kServing);
      });
  command
      ->AddWholeNumber("--wait", wait.get(),
                       "seconds to ask again in, until it serves", 0)
      .TypeName("SECONDS");
  command->AddFlag("--alive", alive.get(),
                   "succeed if the server answers, serving or not: for "
                   "liveness probes");
}

}  // namespace ballast
