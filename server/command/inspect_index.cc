#include "server/command/inspect_index.h"

#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"
#include "server/config/config_loader.h"
#include "server/corpus/index/image_mark.h"
#include "server/job/check_sources.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

Json JsonOf(const SourceMarks& source) {
  const ImageMarkCounts& marks = source.marks;
  Json refusals = Json::object();
  for (size_t i = 0; i < marks.refusals.size(); ++i) {
    if (marks.refusals[i] == 0) continue;
    refusals[i == 0 ? "not judged"
                    : std::string(EngineRefusalText(
                          static_cast<EngineRefusal>(i)))] = marks.refusals[i];
  }
  const uint64_t unchecked = marks.with(ImageCheckResult::kUnchecked);
  return {{"source", source.source},
          {"samples", source.samples},
          {"images", marks.images},
          {"marked", marks.marked()},
          {"checked", marks.marked() - unchecked},
          {"clean", marks.with(ImageCheckResult::kClean)},
          {"unsound", marks.with(ImageCheckResult::kUnsound)},
          {"changed", marks.with(ImageCheckResult::kChanged)},
          {"refusals", refusals}};
}

absl::Status InspectIndex(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config, LoadConfig(path));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceMarks> sources,
                           CountMarks(config));
  for (const SourceMarks& source : sources) {
    std::cout << JsonOf(source).dump() << "\n";
  }
  std::cout.flush();
  if (!std::cout) {
    return absl::UnavailableError("cannot write to standard output");
  }
  return absl::OkStatus();
}

}  // namespace

void AddInspectIndex(CommandLine* line, Command* inspect) {
  auto config = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "index",
      R"(Prints how many images of each source JPEG engines may decode.
One JSON object a source that has files, with the keys: source, samples, images,
marked (those that their headers allow), checked (of these), clean, unsound,
changed (since they were indexed), refusals {reason: images}: why the others are
left to the server.)",
      "  ballast-server inspect index --config ballast.yaml",
      [config] { return InspectIndex(*config); });
  command->AddText("--config", config.get(), "configuration file")
      .Required()
      .TypeName("FILE");
}

}  // namespace ballast
