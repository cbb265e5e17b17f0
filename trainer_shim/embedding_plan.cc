#include "trainer_shim/embedding_plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/image_columns.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

absl::Status CheckModules(const v1::ModuleSchedule* vision,
                          const v1::ModuleSchedule* language, uint32_t rank) {
  const int vision_dp = vision == nullptr ? 0 : vision->load_after_size();
  const int language_dp = language == nullptr ? 0 : language->load_after_size();
  if (vision_dp == language_dp && rank < static_cast<uint32_t>(vision_dp)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule: embeddings of rank ", rank, " with vision dp ", vision_dp,
      " and language dp ", language_dp,
      "; wanted both modules on the same ranks, and this one of them"));
}

// The samples that `rank` owns in either module, in ascending order of place.
std::vector<uint32_t> SamplesOf(const v1::MicroBatchSchedule& micro_batch,
                                const v1::ModuleSchedule& vision,
                                const v1::ModuleSchedule& language,
                                uint32_t rank) {
  std::vector<uint32_t> samples;
  for (int i = 0; i < micro_batch.place_size(); ++i) {
    if (vision.owner(i) == rank || language.owner(i) == rank) {
      samples.push_back(i);
    }
  }
  std::sort(samples.begin(), samples.end(), [&](uint32_t a, uint32_t b) {
    return micro_batch.place(a) < micro_batch.place(b);
  });
  return samples;
}

// Appends the next `rows` rows to a list of runs. `grow`: to its last run.
void AddRun(uint32_t peer, int64_t rows, bool grow,
            std::vector<EmbeddingPlan::Run>* runs) {
  if (grow) {
    runs->back().rows += rows;
    return;
  }
  const int64_t first =
      runs->empty() ? 0 : runs->back().first + runs->back().rows;
  runs->push_back({peer, first, rows});
}

// Adds a sample of `rows` rows, at least 1. A sample that stays joins the one
// before if that stays too; elsewhere the two ranks of a run would have to know
// what lies between at the other.
void AddRuns(uint32_t rank, uint32_t vision, uint32_t language, int64_t rows,
             EmbeddingPlan* plan) {
  const auto ends_here = [rank](const std::vector<EmbeddingPlan::Run>& runs) {
    return !runs.empty() && runs.back().peer == rank;
  };
  const bool stays = vision == rank && language == rank;
  const bool grow =
      stays && ends_here(plan->sent_runs) && ends_here(plan->received_runs);
  if (vision == rank) AddRun(language, rows, grow, &plan->sent_runs);
  if (language == rank) AddRun(vision, rows, grow, &plan->received_runs);
}

}  // namespace

absl::Status PlanEmbeddings(const v1::MicroBatchSchedule& micro_batch,
                            uint32_t rank, uint32_t merge,
                            EmbeddingPlan* plan) {
  const v1::ModuleSchedule* vision = FindModule(micro_batch, v1::MODULE_VISION);
  const v1::ModuleSchedule* language =
      FindModule(micro_batch, v1::MODULE_LANGUAGE);
  BALLAST_RETURN_IF_ERROR(CheckModules(vision, language, rank));
  const std::vector<uint64_t> patches = SamplePatches(micro_batch);
  const std::vector<uint32_t> samples =
      SamplesOf(micro_batch, *vision, *language, rank);
  const auto rows = [&](uint32_t i) {
    return static_cast<int64_t>(patches[i] / (uint64_t{merge} * merge));
  };

  const int ranks = vision->load_after_size();
  plan->send.assign(ranks, 0);
  plan->receive.assign(ranks, 0);
  plan->sent_runs.clear();
  plan->received_runs.clear();
  uint32_t last = 0;
  for (const uint32_t i : samples) {
    if (language->owner(i) < last) {
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule: position ", micro_batch.position(i), " at place ",
          micro_batch.place(i), " belongs to language rank ",
          language->owner(i), ", after a sample of rank ", last,
          "; wanted owners that ascend with place"));
    }
    last = language->owner(i);
    if (vision->owner(i) == rank) plan->send[last] += rows(i);
    if (last == rank) plan->receive[vision->owner(i)] += rows(i);
    if (rows(i) > 0) {
      AddRuns(rank, vision->owner(i), last, rows(i), plan);
    }
  }

  // Where the next rows from each rank lie.
  std::vector<int64_t> next(ranks);
  std::exclusive_scan(plan->receive.begin(), plan->receive.end(), next.begin(),
                      int64_t{0});
  plan->order.clear();
  for (const uint32_t i : samples) {
    if (language->owner(i) != rank) continue;
    int64_t& from = next[vision->owner(i)];
    for (int64_t row = 0; row < rows(i); ++row) plan->order.push_back(from++);
  }
  return absl::OkStatus();
}

}  // namespace ballast
