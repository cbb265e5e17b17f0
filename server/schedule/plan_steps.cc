#include "server/schedule/plan_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/config/topology.h"
#include "server/schedule/cost_model.h"

namespace ballast {
namespace {

// Ranges of steps that a job lists; with more, its steps have sizes of their
// own.
constexpr size_t kMaxPlanRanges = 256;

// The starts of the steps of a plan file.
class PlanStarts final : public StepStarts {
 public:
  explicit PlanStarts(PlanData plan) : plan_(std::move(plan)) {}

  absl::StatusOr<uint64_t> Start(uint64_t n) const override {
    const absl::Span<const uint64_t> starts = plan_.rows->starts();
    if (n < starts.size()) return plan_.first_position + starts[n];
    return absl::OutOfRangeError(
        absl::StrCat("step ", plan_.rows->first_step() + n,
                     " is after the last one of "
                     "order.plan, ",
                     plan_.rows->first_step() + starts.size() - 2));
  }
  absl::StatusOr<uint64_t> CountEnded(uint64_t position) const override {
    const absl::Span<const uint64_t> starts = plan_.rows->starts();
    return std::upper_bound(starts.begin(), starts.end(),
                            position - plan_.first_position) -
           starts.begin() - 1;
  }

 private:
  const PlanData plan_;
};

// Checks the packs of a step, whose first row is `first_row`.
absl::Status CheckPacks(const v1::Config& config,
                        const std::vector<PlanRow>& rows, uint64_t first_row,
                        uint64_t step, const PackShape& packs,
                        uint32_t multiple,
                        const std::vector<const SourceIndex*>& indexes,
                        const ModelImages& images) {
  std::vector<std::vector<uint64_t>> ordinals(indexes.size());
  uint32_t count = 0;
  for (const PlanRow& row : rows) {
    ordinals[row.source].push_back(row.ordinal);
    count = std::max(count, row.pack + 1);
  }
  if (count % multiple != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "order.plan: row ", first_row, ": step ", step, " has ", count,
        " packs; wanted a multiple of the grid times "
        "packing.virtual_pipeline_group, ",
        multiple));
  }
  for (size_t s = 0; s < indexes.size(); ++s) {
    if (!ordinals[s].empty()) indexes[s]->Prefetch(ordinals[s]);
  }
  std::vector<uint64_t> tokens(count);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto size = [&]() -> absl::StatusOr<SampleSize> {
      BALLAST_ASSIGN_OR_RETURN(
          const IndexedSample indexed,
          indexes[rows[i].source]->sample(rows[i].ordinal));
      return MeasureSample(
          indexed,
          GetSampleImages(config, rows[i].source, rows[i].ordinal,
                          rows[i].epoch, indexed.media.images()),
          images);
    }();
    if (!size.ok()) {
      return Annotate(size.status(),
                      absl::StrCat("order.plan: row ", first_row + i));
    }
    uint64_t& held = tokens[rows[i].pack];
    held += PaddedTokens(*size, packs.align);
    if (held <= packs.capacity) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("order.plan: row ", first_row + i,
                     ": with its sample pack ", rows[i].pack, " of step ", step,
                     " has ", held, " tokens with padding; a pack holds ",
                     packs.capacity, " (packing.max_tokens_per_rank * cp)"));
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<const StepStarts> MakePlanStarts(PlanData plan) {
  return std::make_shared<PlanStarts>(std::move(plan));
}

uint64_t LargestStep(const PlanRows& plan) {
  const absl::Span<const uint64_t> starts = plan.starts();
  uint64_t largest = 0;
  for (size_t n = 0; n + 1 < starts.size(); ++n) {
    largest = std::max(largest, starts[n + 1] - starts[n]);
  }
  return largest;
}

void AddPlanRanges(const PlanData& plan, uint32_t micro,
                   std::vector<v1::StepRange>* steps) {
  const uint64_t first_step = plan.rows->first_step();
  while (!steps->empty() && steps->back().first_step() >= first_step) {
    steps->pop_back();
  }
  const size_t before = steps->size();
  const absl::Span<const uint64_t> starts = plan.rows->starts();
  v1::StepRange range;
  if (!steps->empty()) range = steps->back();  // the plan's positions go on
  for (size_t n = 0; n + 1 < starts.size(); ++n) {
    const uint32_t samples = starts[n + 1] - starts[n];
    if (samples == range.samples()) continue;
    range.set_first_step(first_step + n);
    range.set_first_position(plan.first_position + starts[n]);
    range.set_samples(samples);
    steps->push_back(range);
    // Clients take whole micro-batches in a range.
    if (steps->size() <= before + kMaxPlanRanges && samples % micro == 0) {
      continue;
    }
    steps->resize(before + 1);
    steps->back().set_samples(0);
    return;
  }
}

absl::Status CheckBeforePlan(const v1::Config& config, const PlanRows& plan) {
  const auto refuse = [&](absl::string_view key, uint64_t step) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": alters steps from ", step,
                     " on, and order.plan gives those "
                     "from ",
                     plan.first_step(),
                     " on; wanted earlier ones alone, or "
                     "remove it"));
  };
  BALLAST_ASSIGN_OR_RETURN(const std::vector<BatchSize> sizes,
                           BatchSizes(config.batch()));
  for (const BatchSize& size : sizes) {
    if (size.first_step == 0 || size.first_step < plan.first_step()) continue;
    return refuse(size.is_change ? "batch.changes" : "batch.rampup",
                  size.first_step);
  }
  for (const auto& change : config.order().mixture_changes()) {
    if (change.step() < plan.first_step()) continue;
    return refuse("order.mixture_changes", change.step());
  }
  for (const v1::Order::Skip& skip : config.order().skips()) {
    if (skip.step() < plan.first_step()) continue;
    return refuse("order.skips", skip.step());
  }
  return absl::OkStatus();
}

absl::Status CheckPlanSteps(const v1::Config& config, const PlanRows& plan,
                            const std::optional<PackShape>& packs,
                            const std::vector<const SourceIndex*>& indexes,
                            const ModelImages& images) {
  const uint32_t grid = Grid(config.topology());
  const uint32_t group =
      std::max(config.packing().virtual_pipeline_group(), 1u);
  const uint32_t multiple =
      (packs.has_value() ? grid : config.batch().micro()) * group;
  const absl::Span<const uint64_t> starts = plan.starts();
  for (size_t n = 0; n + 1 < starts.size(); ++n) {
    const uint64_t step = plan.first_step() + n;
    const uint64_t samples = starts[n + 1] - starts[n];
    const std::string at =
        absl::StrCat("order.plan: row ", starts[n], ": step ", step, " has ");
    if (!plan.HasPacks(step)) {
      if (samples % multiple == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          at, samples, " rows; wanted a multiple of ", multiple, ", ",
          packs.has_value() ? "the grid" : "batch.micro",
          group > 1 ? " times packing.virtual_pipeline_group" : ""));
    }
    if (!packs.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          at, "packs; wanted packing.mode: scheduled, or pack -1"));
    }
    if (DpSize(config, v1::MODULE_LANGUAGE) != grid) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, "packs; wanted a language dp of the grid, ", grid,
                       ", so that each rank has one pack, or pack -1"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::vector<PlanRow> rows,
                             plan.Read(starts[n], samples));
    BALLAST_RETURN_IF_ERROR(CheckPacks(config, rows, starts[n], step, *packs,
                                       multiple, indexes, images));
  }
  return absl::OkStatus();
}

}  // namespace ballast
