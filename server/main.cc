// ballast-server: builds indexes, serves shards and shows what it would serve.

#include "common/command_line.h"
#include "server/command/commands.h"
#include "server/files/arrow_store.h"

int main(int argc, char** argv) {
  ballast::CommandLine line(
      "ballast-server",
      "Loader server of Ballast: reads, decodes, tokenises and shards images\n"
      "and text for the data-parallel ranks of a training job.",
      "  ballast-server make-corpus --out data --samples 512\n"
      "  ballast-server index --config data/ballast.yaml\n"
      "  ballast-server plan --config data/ballast.yaml --step 0\n"
      "  ballast-server serve --config data/ballast.yaml\n"
      "\n"
      "See also `ballast-server COMMAND --help`.");
  ballast::AddInit(&line);
  ballast::AddIndex(&line);
  ballast::AddFetch(&line);
  ballast::AddServe(&line);
  ballast::AddPlan(&line);
  ballast::AddPack(&line);
  ballast::AddPreview(&line);
  ballast::Command* inspect = line.AddGroup(
      "inspect", "Runs one part on given input and prints the result.",
      "  ballast-server inspect image --model qwen2_5_vl photo.jpg\n"
      "  ballast-server inspect sample --config ballast.yaml --position 17");
  ballast::AddInspectAudio(&line, inspect);
  ballast::AddInspectBalance(&line, inspect);
  ballast::AddInspectContext(&line, inspect);
  ballast::AddInspectConversation(&line, inspect);
  ballast::AddInspectFamily(&line, inspect);
  ballast::AddInspectFingerprint(&line, inspect);
  ballast::AddInspectHelpers(&line, inspect);
  ballast::AddInspectImage(&line, inspect);
  ballast::AddInspectIndex(&line, inspect);
  ballast::AddInspectLengths(&line, inspect);
  ballast::AddInspectPlacement(&line, inspect);
  ballast::AddInspectPositions(&line, inspect);
  ballast::AddInspectRecipe(&line, inspect);
  ballast::AddInspectSample(&line, inspect);
  ballast::AddInspectText(&line, inspect);
  ballast::AddInspectVideo(&line, inspect);
  ballast::AddMakeCorpus(&line);
  ballast::AddRepack(&line);
  const int result = line.Run(argc, argv);
  ballast::StopStores();
  return result;
}
