// ballastctl: asks a running loader server.

#include <memory>
#include <string>

#include "client/ballastctl/pull.h"
#include "client/ballastctl/schedule.h"
#include "client/ballastctl/status.h"
#include "common/command_line.h"

int main(int argc, char** argv) {
  ballast::CommandLine line("ballastctl",
                            "Queries a loader server of Ballast.");
  // Global options may also follow the command.
  line.app()->fallthrough();
  auto server = std::make_shared<std::string>();
  line.app()
      ->add_option("--server", *server,
                   "address of the server, unix:/path or host:port")
      ->envname("BALLAST_SERVER")
      ->required();
  ballast::AddStatus(&line, server);
  ballast::AddSchedule(&line, server);
  ballast::AddPull(&line, server);
  return line.Run(argc, argv);
}
