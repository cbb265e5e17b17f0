#include "server/command/inspect_lengths.h"

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

struct Options {
  std::string mode;
  LognormalLengths lengths;
  uint64_t count = 0;
};

}  // namespace

absl::Status InspectLengths(const LognormalLengths& lengths, uint64_t count,
                            std::ostream& out) {
  const absl::Status checked = CheckLognormalLengths(lengths);
  if (!checked.ok()) {
    // Its message begins with the name of the value.
    return absl::Status(checked.code(), absl::StrCat("--", checked.message()));
  }
  MockLengths drawn(lengths);
  // Written as they are drawn: `count` may be more than memory holds.
  out << '[';
  for (uint64_t i = 0; i < count && out; ++i) {
    if (i > 0) out << ',';
    out << drawn.Next();
  }
  out << "]\n" << std::flush;
  if (!out) return absl::UnavailableError("cannot write standard output");
  return absl::OkStatus();
}

void AddInspectLengths(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      inspect, "lengths",
      "Prints the lengths that a mock source draws, in tokens.\n"
      "One JSON array, in the order of the source's samples; the same as\n"
      "Megatron-LM's mock datasets have for the same numbers.",
      "  ballast-server inspect lengths --mode lognormal --min 1024 --max 8192 "
      "\\\n"
      "      --mean 4096 --sigma 1.1 --count 8",
      [options] {
        return InspectLengths(options->lengths, options->count, std::cout);
      });
  command->AddText("--mode", &options->mode, "how they are drawn")
      .OneOf({"lognormal"})
      .Required();
  command->AddWholeNumber("--min", &options->lengths.min, "least length")
      .Required();
  command->AddWholeNumber("--max", &options->lengths.max, "greatest length")
      .Required();
  command
      ->AddReal("--mean", &options->lengths.mean,
                "mean of what is drawn, before it is clipped to --min and "
                "--max")
      .Required()
      .TypeName("TOKENS");
  command
      ->AddReal("--sigma", &options->lengths.sigma,
                "deviation of the logarithm")
      .Required()
      .TypeName("X");
  command->AddWholeNumber("--count", &options->count, "number of lengths")
      .Required();
}

}  // namespace ballast
