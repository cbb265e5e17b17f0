#include "proto/schedule/schedule_table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/table.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

using Loads = google::protobuf::RepeatedField<double>;

std::string Range(const Loads& loads) {
  if (loads.empty()) return "-";
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  return absl::StrFormat("%.0f..%.0f", *least, *most);
}

// "1.000" if every rank has the same load.
std::string LargestOverMean(const Loads& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum == 0) return "-";
  const double most = *std::max_element(loads.begin(), loads.end());
  return absl::StrFormat("%.3f", most * loads.size() / sum);
}

}  // namespace

std::string ScheduleToTable(const v1::StepSchedule& schedule) {
  Table table({{"micro-batch"},
               {"module", Table::kLeft},
               {"samples"},
               {"moved"},
               {"load before"},
               {"max/mean"},
               {"load after"},
               {"max/mean"}});
  for (int m = 0; m < schedule.micro_batches_size(); ++m) {
    for (const v1::ModuleSchedule& module :
         schedule.micro_batches(m).modules()) {
      int moved = 0;
      for (int i = 0; i < module.owner_size(); ++i) {
        moved += module.owner(i) != module.reader(i);
      }
      table.AddRow(
          {absl::StrCat(m), std::string(ModuleName(module.module())),
           absl::StrCat(module.owner_size()), absl::StrCat(moved),
           Range(module.load_before()), LargestOverMean(module.load_before()),
           Range(module.load_after()), LargestOverMean(module.load_after())});
    }
  }
  const v1::Totals& totals = schedule.totals();
  std::string embeddings;
  if (totals.has_embeddings_moved()) {
    const v1::EmbeddingsMoved& moved = totals.embeddings_moved();
    embeddings =
        absl::StrCat("embeddings moved: ", moved.tokens_within_servers(),
                     " tokens within servers, ", moved.tokens_between_servers(),
                     " between servers\n");
  }
  return absl::StrCat(SplitWord(schedule.split()), "step ", schedule.step(),
                      "  fingerprint ", schedule.fingerprint(), "\n",
                      table.ToString(), "totals: ", totals.tokens(),
                      " tokens, ", totals.label_tokens(), " label tokens, ",
                      totals.patches(), " patches, ", totals.images(),
                      " images",
                      totals.videos() == 0
                          ? ""
                          : absl::StrCat(", ", totals.videos(), " videos"),
                      "\n", embeddings);
}

}  // namespace ballast
