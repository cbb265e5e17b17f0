// ballastctl: queries running loader servers.

#include <memory>

#include "client/ballastctl/commands.h"
#include "client/connection_flags.h"
#include "common/command_line.h"
#include "common/log.h"

int main(int argc, char** argv) {
  ballast::SendLibraryLogsToLog();
  ballast::CommandLine line("ballastctl", "Queries a loader server of Ballast.",
                            "  ballastctl --server 127.0.0.1:7070 status\n"
                            "  ballastctl --server unix:/run/ballast/a.sock "
                            "schedule --step 0\n"
                            "\n"
                            "`ballastctl COMMAND --help` says more of each.");
  // Global options may also follow the command.
  line.program()->AllowOptionsAfterCommand();
  auto server = std::make_shared<ballast::ServerOption>();
  line.program()
      ->AddText("--server", &server->addresses,
                "unix:/path or host:port of the server; several with commas "
                "between: `pull` goes on with the next when one fails, "
                "`tier` and `doctor` ask all, the others the first")
      .TypeName("ADDRESS[,ADDRESS...]")
      .FromEnvironment("BALLAST_SERVER")
      .Required();
  ballast::AddSecurityFlags(line.program(), &server->security);
  ballast::AddStatus(&line, server);
  ballast::AddHealth(&line, server);
  ballast::AddDoctor(&line, server);
  ballast::AddSchedule(&line, server);
  ballast::AddSamples(&line, server);
  ballast::AddMixture(&line, server);
  ballast::AddPull(&line, server);
  ballast::AddFitCost(&line, server);
  ballast::AddBalance(&line, server);
  ballast::AddChange(&line, server);
  ballast::AddMetrics(&line, server);
  ballast::AddTop(&line, server);
  ballast::AddTier(&line, server);
  return line.Run(argc, argv);
}
