#include "server/command/inspect_lengths.h"

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/option_types.h"
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
  // Written one by one: `count` lengths may exceed memory.
  out << '[';
  for (uint64_t i = 0; i < count && out; ++i) {
    if (i > 0) out << ',';
    out << drawn.Next();
  }
  out << "]\n" << std::flush;
  if (!out) return absl::UnavailableError("cannot write to standard output");
  return absl::OkStatus();
}

void AddInspectLengths(CommandLine* line, CLI::App* inspect) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line->AddCommand(
      inspect, "lengths",
      R"(Prints the lengths that a mock source draws, in tokens.
One JSON array, in the order of the source's samples; equal to the lengths of
Megatron-LM's mock datasets for the same options.)",
      R"(  ballast-server inspect lengths --mode lognormal --min 1024 --max 8192 \
      --mean 4096 --sigma 1.1 --count 8)",
      [options] {
        return InspectLengths(options->lengths, options->count, std::cout);
      });
  OneOf(command->add_option("--mode", options->mode,
                            "distribution of the lengths"),
        {"lognormal"})
      ->required();
  AddWholeNumber(command, "--min", options->lengths.min,
                 "smallest length, in tokens")
      ->required();
  AddWholeNumber(command, "--max", options->lengths.max,
                 "largest length, in tokens")
      ->required();
  command
      ->add_option("--mean", options->lengths.mean,
                   "mean of the distribution, before lengths are clipped to "
                   "--min and --max")
      ->required()
      ->type_name("TOKENS");
  command
      ->add_option("--sigma", options->lengths.sigma,
                   "standard deviation of the logarithm")
      ->required()
      ->type_name("X");
  AddWholeNumber(command, "--count", options->count, "number of lengths")
      ->required();
}

}  // namespace ballast
