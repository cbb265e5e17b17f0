#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/command/commands.h"
#include "server/schedule/context_packs.h"

namespace ballast {
namespace {

struct InspectContextOptions {
  ContextLimits limits;
  std::string algorithm = "refined";
  double linear = 0;
  double quadratic = 1;
};

absl::StatusOr<std::vector<uint32_t>> ParseLengths(
    const nlohmann::json& object) {
  const auto found = object.find("lengths");
  if (found == object.end() || !found->is_array()) {
    return absl::InvalidArgumentError(
        "key `lengths` is missing or not a list; wanted a list of whole "
        "numbers");
  }
  constexpr uint64_t kMost = uint64_t{1} << 30;
  std::vector<uint32_t> lengths;
  for (const nlohmann::json& length : *found) {
    if (!length.is_number_unsigned() || length.get<uint64_t>() == 0 ||
        length.get<uint64_t>() > kMost) {
      return absl::InvalidArgumentError(
          absl::StrCat("length ", lengths.size(), " is ", length.dump(),
                       "; wanted a whole number from 1 to ", kMost));
    }
    lengths.push_back(length.get<uint32_t>());
  }
  return lengths;
}

absl::StatusOr<std::vector<Groups>> PackLengths(
    const std::vector<uint32_t>& lengths,
    const InspectContextOptions& options) {
  const ContextLimits& limits = options.limits;
  std::vector<double> costs;
  for (const double length : lengths) {
    costs.push_back(options.linear * length +
                    options.quadratic * length * length);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<ContextMicroBatch> packs,
                           options.algorithm == "static"
                               ? PackStatic(lengths, limits)
                               : PackByContext(lengths, costs, limits));
  return ListByRank(packs, limits.ranks);
}

absl::StatusOr<nlohmann::ordered_json> InspectContext(
    const nlohmann::json& object, const InspectContextOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths,
                           ParseLengths(object));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Groups> by_rank,
                           PackLengths(lengths, options));
  const ContextFigures figures = GetContextFigures(lengths, by_rank);
  return nlohmann::ordered_json{{"ranks", by_rank},
                                {"busiest", figures.busiest},
                                {"mean", figures.mean},
                                {"keys_moved", figures.keys_moved},
                                {"most_tokens", figures.most_tokens}};
}

}  // namespace

void AddInspectContext(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<InspectContextOptions>();
  Command* command = line->AddCommand(
      inspect, "context",
      R"(Packs samples for dynamic context parallelism, as the schedule does.
Reads lines {"lengths": [tokens, …]} from standard input and prints for each
{"ranks": [[[sample, …], …], …], "busiest": x, "mean": x, "keys_moved": n,
"most_tokens": x}. ranks: of each micro-batch and rank the samples of which it
computes its part. busiest and mean: attention work (squared tokens) of the
busiest rank of each micro-batch, and of the mean rank, summed. keys_moved: keys
and values that ranks receive from others, in tokens. most_tokens: of a rank in
a micro-batch.)",
      R"(  echo '{"lengths": [30000, 900, 2000, 1500, 700, 800, 400, 1200]}' |
    ballast-server inspect context --ranks 4 --most-ranks 4 --tokens 8192)",
      [options] {
        return TransformJsonLines(
            std::cin, std::cout,
            [&](const nlohmann::json& object, const std::string&) {
              return InspectContext(object, *options);
            });
      });
  command
      ->AddWholeNumber("--ranks", &options->limits.ranks,
                       "ranks, of data and context parallelism together", 1,
                       uint32_t{1} << 20)
      .Required();
  command
      ->AddWholeNumber("--most-ranks", &options->limits.most_ranks,
                       "the most ranks that share a pack; a power of two that "
                       "divides --ranks",
                       1, 1024)
      .ShowDefault();
  command
      ->AddWholeNumber("--tokens", &options->limits.tokens_a_rank,
                       "tokens that a rank holds", 1, uint64_t{1} << 24)
      .Required();
  command
      ->AddText("--algorithm", &options->algorithm,
                "`static`: each pack is shared by --most-ranks ranks")
      .OneOf({"refined", "static"})
      .ShowDefault();
  command
      ->AddReal(
          "--linear", &options->linear,
          "what `refined` makes even: this times tokens, plus --quadratic "
          "times squared tokens")
      .ShowDefault();
  command->AddReal("--quadratic", &options->quadratic, "see --linear")
      .ShowDefault();
}

}  // namespace ballast
