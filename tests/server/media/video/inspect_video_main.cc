// `ballast-server inspect video` and `inspect helpers` alone, for tests and
// benchmarks that need no more of the server.

#include "common/command_line.h"
#include "server/command/commands.h"

int main(int argc, char** argv) {
  ballast::CommandLine line("inspect-video", "Part of ballast-server.",
                            "  inspect-video inspect video --help");
  ballast::Command* inspect =
      line.AddGroup("inspect", "Runs one part.", "  inspect video a.mp4");
  ballast::AddInspectHelpers(&line, inspect);
  ballast::AddInspectVideo(&line, inspect);
  return line.Run(argc, argv);
}
