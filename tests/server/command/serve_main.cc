// A program with only the command `serve`, for serve_test to start.

#include "common/command_line.h"
#include "server/command/commands.h"

int main(int argc, char** argv) {
  ballast::CommandLine line("ballast-server", "Serves.");
  ballast::AddServe(&line);
  return line.Run(argc, argv);
}
