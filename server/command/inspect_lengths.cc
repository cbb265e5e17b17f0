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
    // The message begins with the option's name.
    return absl::Status(checked.code(), absl::StrCat("--", checked.message()));
  }
  MockLengths drawn(lengths);
  // Writes one length at a time: `count` lengths may exceed memory.
  out << '[';
  for (uint64_t i = 0; i < count && out; ++i) {
    if (i > 0) out << ',';
    out << drawn.Next();
  }
  out << "]\n" << std::flush;
  if (!out) return absl::UnavailableError("cannot write to standard output");
  return absl::OkStatus();
}

void AddInspectLengths(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      inspect, "lengths",
      R"(Prints the lengths that a mock source draws, in tokens.
One JSON array, in the order of the source's samples; equal to the lengths of
Megatron-LM's mock datasets for the same options.)",
      R"(  ballast-server inspect lengths --mode lognormal --min 1024 --max 8192 \
      --mean 4096 --sigma 1.1 --count 8)",
      [options] {
        return InspectLengths(options->lengths, options->count, std::cout);
      });
  command->AddText("--mode", &options->mode, "distribution of the lengths")
      .OneOf({"lognormal"})
      .Required();
  command
      ->AddWholeNumber("--min", &options->lengths.min,
                       "smallest length, in tokens")
      .Required();
  command
      ->AddWholeNumber("--max", &options->lengths.max,
                       "largest length, in tokens")
      .Required();
  command
      ->AddReal("--mean", &options->lengths.mean,
                "mean of the distribution, before lengths are clipped to "
                "--min and --max")
      .Required()
      .TypeName("TOKENS");
  command
      ->AddReal("--sigma", &options->lengths.sigma,
                "standard deviation of the logarithm")
      .Required()
      .TypeName("X");
  command->AddWholeNumber("--count", &options->count, "number of lengths")
      .Required();
}

}  // namespace ballast
