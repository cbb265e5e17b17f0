// The commands of ballast-server that check_energon.py needs, without the rest.

#include "common/command_line.h"
#include "server/command/commands.h"

int main(int argc, char** argv) {
  ballast::CommandLine line("ballast-server", "Commands on data.");
  ballast::AddIndex(&line);
  ballast::AddMakeCorpus(&line);
  ballast::AddRepack(&line);
  return line.Run(argc, argv);
}
