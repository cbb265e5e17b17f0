#include "trainer_shim/embedding_plan.h"

#include <algorithm>
#include <numeric>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {
namespace {

// Columns of the sending and the receiving module.
struct Modules {
  const v1::ModuleSchedule* encoder = nullptr;
  const v1::ModuleSchedule* language = nullptr;
};

uint32_t RanksOf(const v1::ModuleSchedule* module) {
  return module == nullptr ? 0 : module->load_after_size();
}

// The columns of the encoder, which must occur once, and of language.
absl::StatusOr<Modules> FindModules(const v1::MicroBatchSchedule& micro_batch,
                                    const EmbeddingRank& of) {
  Modules found;
  int encoders = 0;
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    if (IsLanguage(module.module())) found.language = &module;
    if (module.module() != of.encoder) continue;
    found.encoder = &module;
    ++encoders;
  }
  if (encoders != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: embeddings of ", encoders, " encoders ",
                     ModuleName(of.encoder), "; wanted one"));
  }
  const uint32_t ranks = RanksOf(found.encoder);
  const uint32_t texts = RanksOf(found.language);
  const bool together = of.encodes && of.has_text;
  const uint32_t own = of.encodes ? ranks : texts;
  if ((together ? ranks == texts : texts > 0) && of.rank < own) return found;
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule: embeddings of rank ", of.rank, " of ",
      together     ? "both modules"
      : of.encodes ? "the encoder"
                   : "language",
      " with ", ModuleName(found.encoder->module()), " dp ", ranks,
      " and language dp ", texts,
      "; wanted a rank that exists, and one dp where both modules share it"));
}

// The rows that the encoder makes of each sample.
absl::StatusOr<std::vector<int64_t>> SampleRows(
    const v1::MicroBatchSchedule& micro_batch, Media media, uint32_t merge) {
  std::vector<int64_t> rows;
  if (media != Media::kRows) {
    for (const uint64_t patches : SamplePatches(micro_batch)) {
      rows.push_back(static_cast<int64_t>(patches / (uint64_t{merge} * merge)));
    }
    return rows;
  }
  if (micro_batch.clip_tokens_size() != micro_batch.clip_rows_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule: clip_tokens of ", micro_batch.clip_tokens_size(), " of ",
        micro_batch.clip_rows_size(), " clips; is the server older?"));
  }
  for (const uint64_t tokens : SampleClipTokens(micro_batch)) {
    rows.push_back(static_cast<int64_t>(tokens));
  }
  return rows;
}

// The samples that a rank owns in a module that it has, in ascending order of
// place.
std::vector<uint32_t> SamplesOf(const v1::MicroBatchSchedule& micro_batch,
                                const v1::ModuleSchedule& encoder,
                                const v1::ModuleSchedule& language,
                                const EmbeddingRank& of) {
  std::vector<uint32_t> samples;
  for (int i = 0; i < micro_batch.place_size(); ++i) {
    if ((of.encodes && encoder.owner(i) == of.rank) ||
        (of.has_text && TrainsOn(language, i, of.rank))) {
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

// Adds a sample of `rows` rows, at least 1. A sample that stays joins the run
// before if that run stays too. Other samples are not joined: both ranks of a
// run would have to know which rows are between the samples at the other rank.
void AddRuns(uint32_t rank, uint32_t encoder, uint32_t language, int64_t rows,
             EmbeddingPlan* plan) {
  const auto ends_here = [rank](const std::vector<EmbeddingPlan::Run>& runs) {
    return !runs.empty() && runs.back().peer == rank;
  };
  const bool stays = encoder == rank && language == rank;
  const bool grow =
      stays && ends_here(plan->sent_runs) && ends_here(plan->received_runs);
  if (encoder == rank) AddRun(language, rows, grow, &plan->sent_runs);
  if (language == rank) AddRun(encoder, rows, grow, &plan->received_runs);
}

// EmbeddingPlan::send_order: the rows of each pack, once for each of its ranks.
// `samples`: the result of SamplesOf.
void RepeatRows(const std::vector<uint32_t>& samples,
                const std::vector<int64_t>& rows,
                const v1::ModuleSchedule& encoder,
                const v1::ModuleSchedule& language, uint32_t rank,
                std::vector<int64_t>* order) {
  int64_t begin = 0, end = 0;  // the pack's rows of the tower
  for (size_t k = 0; k < samples.size(); ++k) {
    const uint32_t i = samples[k];
    if (encoder.owner(i) == rank) end += rows[i];
    if (k + 1 < samples.size() &&
        language.owner(samples[k + 1]) == language.owner(i)) {
      continue;
    }
    for (uint32_t r = 0; r < PackRanks(language, i); ++r) {
      for (int64_t row = begin; row < end; ++row) order->push_back(row);
    }
    begin = end;
  }
}

}  // namespace

const EmbeddingPlan& FindPlan(const EmbeddingPlans& plans, v1::Module encoder) {
  static const auto* const none = new EmbeddingPlan();
  const auto found = std::find_if(
      plans.begin(), plans.end(),
      [&](const EmbeddingPlan& plan) { return plan.encoder == encoder; });
  return found == plans.end() ? *none : *found;
}

std::string PlanTensorName(v1::Module encoder, absl::string_view part) {
  // Names from before there was a second encoder.
  const bool bare = GetMedia(encoder) == Media::kImages;
  return absl::StrCat(bare ? "" : ModuleName(encoder), bare ? "" : "_",
                      "embedding_", part);
}

absl::Status PlanEmbeddings(const v1::MicroBatchSchedule& micro_batch,
                            const EmbeddingRank& of, uint32_t merge,
                            EmbeddingPlan* plan) {
  BALLAST_ASSIGN_OR_RETURN(const Modules modules, FindModules(micro_batch, of));
  const v1::ModuleSchedule* const encoder = modules.encoder;
  const v1::ModuleSchedule* const language = modules.language;
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<int64_t> rows,
      SampleRows(micro_batch, GetMedia(of.encoder), merge));
  const std::vector<uint32_t> samples =
      SamplesOf(micro_batch, *encoder, *language, of);

  plan->encoder = of.encoder;
  plan->send.assign(of.encodes ? RanksOf(language) : 0, 0);
  plan->receive.assign(of.has_text ? RanksOf(encoder) : 0, 0);
  plan->shared = !language->pack_ranks().empty();
  plan->send_order.clear();
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
    if (of.encodes && encoder->owner(i) == of.rank) {
      for (uint32_t r = 0; r < PackRanks(*language, i); ++r) {
        plan->send[last + r] += rows[i];
      }
    }
    if (of.has_text && TrainsOn(*language, i, of.rank)) {
      plan->receive[encoder->owner(i)] += rows[i];
    }
    if (!plan->apart() && !plan->shared && rows[i] > 0) {
      AddRuns(of.rank, encoder->owner(i), last, rows[i], plan);
    }
  }

  if (plan->shared && of.encodes) {
    RepeatRows(samples, rows, *encoder, *language, of.rank, &plan->send_order);
  }

  // The place of the next rows from each rank.
  std::vector<int64_t> next(plan->receive.size());
  std::exclusive_scan(plan->receive.begin(), plan->receive.end(), next.begin(),
                      int64_t{0});
  plan->order.clear();
  if (!of.has_text) return absl::OkStatus();
  for (const uint32_t i : samples) {
    if (!TrainsOn(*language, i, of.rank)) continue;
    int64_t& from = next[encoder->owner(i)];
    for (int64_t row = 0; row < rows[i]; ++row) plan->order.push_back(from++);
  }
  return absl::OkStatus();
}

}  // namespace ballast
