#include "client/ballastctl/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <eigen3/Eigen/QR>

#include "absl/strings/str_cat.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {
namespace {

using Real = long double;
using Column = Eigen::Matrix<Real, Eigen::Dynamic, 1>;
using Columns = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic>;

// A set of terms, one bit each.
using Terms = unsigned;
constexpr Terms kAllTerms = (1u << kCostTerms) - 1;

// A column counts as dependent on others if at most this share of it remains
// after projecting them out. Times are not trusted to a higher precision.
constexpr Real kRelativePrecision = 1e-9L;
// The data support a term if leaving it out adds at least this much to the
// squared residuals, in units of the noise's variance.
constexpr Real kSignificant = 4;

// Least squares of `target` over some of the columns.
struct Solution {
  bool independent = true;  // the columns
  std::array<Real, kCostTerms> coefficients = {};
  Real residual = 0;  // sum of squares

  bool negative() const {
    return *std::min_element(coefficients.begin(), coefficients.end()) < 0;
  }
};

int Count(Terms terms) { return __builtin_popcount(terms); }

std::vector<CostTerm> List(Terms terms) {
  std::vector<CostTerm> list;
  for (int term = 0; term < kCostTerms; ++term) {
    if (terms >> term & 1) list.push_back(static_cast<CostTerm>(term));
  }
  return list;
}

// Solves by QR with column pivoting, which finds dependent columns. Columns
// have length 1 (or 0), so that their scales do not matter.
Solution Solve(const Columns& columns, const Column& target, Terms terms) {
  Solution solution;
  solution.residual = target.squaredNorm();
  if (terms == 0) return solution;
  const std::vector<CostTerm> taken = List(terms);
  const Columns chosen = columns(Eigen::all, taken);
  Eigen::CompleteOrthogonalDecomposition<Columns> qr;
  qr.setThreshold(kRelativePrecision);
  qr.compute(chosen);
  const Column found = qr.solve(target);
  solution.independent = qr.rank() == chosen.cols();
  solution.residual = (target - chosen * found).squaredNorm();
  for (size_t k = 0; k < taken.size(); ++k) {
    solution.coefficients[taken[k]] = found[k];
  }
  return solution;
}

// All least-squares solutions, by their terms.
using Solutions = std::array<Solution, kAllTerms + 1>;

// The terms of the best solution without a negative coefficient. `precision`:
// differences of squared residuals below it are noise.
Terms BestTerms(const Solutions& solutions, Real precision) {
  Terms best = 0;
  for (Terms terms = 1; terms <= kAllTerms; ++terms) {
    const Solution& solution = solutions[terms];
    if (!solution.independent || solution.negative()) continue;
    const Real gain = solutions[best].residual - solution.residual;
    if (gain > precision ||
        (gain >= -precision && Count(terms) < Count(best))) {
      best = terms;
    }
  }
  return best;
}

// The smallest set of terms of which any one, but not all, may be left out.
Terms ConfoundedTerms(const Solutions& solutions, Real noise) {
  const auto matters = [&](Terms without) {
    const Real loss = solutions[kAllTerms & ~without].residual -
                      solutions[kAllTerms].residual;
    return loss > kSignificant * Count(without) * noise;
  };
  Terms found = 0;
  for (Terms set = 1; set <= kAllTerms; ++set) {
    if (Count(set) < 2 || !matters(set)) continue;
    bool spare = true;
    for (Terms part = (set - 1) & set; part != 0; part = (part - 1) & set) {
      spare = spare && !matters(part);
    }
    if (spare && (found == 0 || Count(set) < Count(found))) found = set;
  }
  return found;
}

}  // namespace

const char* CostTermName(CostTerm term) {
  switch (term) {
    case kLinear:
      return "linear";
    case kQuadratic:
      return "quadratic";
    default:
      return "constant";
  }
}

absl::StatusOr<CostFit> FitCost(
    absl::Span<const CostObservation> observations) {
  const size_t count = observations.size();
  if (count < kMinObservations) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", count, " timings, wanted at least ",
                     kMinObservations, " to fit a cost to"));
  }
  Columns columns(count, kCostTerms);
  Column times(count);
  for (size_t i = 0; i < count; ++i) {
    const CostObservation& each = observations[i];
    for (const double value :
         {each.sum, each.sum_of_squares, each.milliseconds}) {
      if (!std::isfinite(value) || value < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "an observation holds ", value, ", wanted what is not negative"));
      }
    }
    columns(i, kLinear) = each.sum;
    columns(i, kQuadratic) = each.sum_of_squares;
    columns(i, kConstant) = 1;
    times[i] = each.milliseconds;
  }
  std::array<Real, kCostTerms> scale;
  for (int term = 0; term < kCostTerms; ++term) {
    const Real length = columns.col(term).norm();
    scale[term] = length > 0 ? length : 1;
    columns.col(term) /= scale[term];
  }

  Solutions solutions;
  for (Terms terms = 0; terms <= kAllTerms; ++terms) {
    solutions[terms] = Solve(columns, times, terms);
  }
  const Real precision =
      times.squaredNorm() * kRelativePrecision * kRelativePrecision;
  const Real noise = std::max(
      solutions[kAllTerms].residual / (count - kCostTerms), precision / count);

  const Terms best_terms = BestTerms(solutions, precision);
  const Solution& best = solutions[best_terms];
  CostFit fit;
  fit.observations = count;
  for (int term = 0; term < kCostTerms; ++term) {
    fit.coefficients[term] =
        static_cast<double>(best.coefficients[term] / scale[term]);
  }
  fit.rms = static_cast<double>(std::sqrt(best.residual / count));
  const Real variance = (times.array() - times.mean()).square().sum();
  if (variance > precision) {
    fit.r_squared = static_cast<double>(1 - best.residual / variance);
  }
  fit.left_out = List(kAllTerms & ~best_terms);
  fit.confounded = List(ConfoundedTerms(solutions, noise));
  return fit;
}

absl::Status AddObservations(const v1::StepSchedule& schedule,
                             absl::Span<const v1::StepTiming> timings,
                             CostObservations* observations) {
  // Each module's ranks: what they own in each slot of the step.
  std::map<v1::Module, std::vector<std::vector<CostObservation>>> owned;
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    for (const v1::ModuleSchedule& module : micro_batch.modules()) {
      auto& slots = owned[module.module()];
      slots.resize(schedule.micro_batches_size());
      for (auto& ranks : slots) {
        ranks.resize(std::max<size_t>(ranks.size(), module.load_after_size()));
      }
      const FirstEntries first = GetFirstEntries(micro_batch);
      for (int i = 0; i < micro_batch.tokens_size(); ++i) {
        // Each rank that shares the sample's pack computes an equal part.
        const uint32_t shared = PackRanks(module, i);
        CostObservation* const rank =
            &slots[micro_batch.slot(i)][module.owner(i)];
        const auto add = [rank, shared](double n, double count) {
          for (uint32_t k = 0; k < shared; ++k) {
            rank[k].sum += n * count / shared;
            rank[k].sum_of_squares += n * n * count / shared;
          }
        };
        switch (GetMedia(module.module())) {
          case Media::kText:
            ForEachSequence(micro_batch.tokens(i), FirstTokens(micro_batch, i),
                            [&](uint32_t tokens) { add(tokens, 1); });
            break;
          case Media::kImages:
            ForEachSegment(micro_batch, first, i,
                           [&add](uint64_t patches, uint32_t count) {
                             add(static_cast<double>(patches), count);
                           });
            break;
          case Media::kAudio:
            for (uint32_t k = first.clip[i]; k < first.clip[i + 1]; ++k) {
              add(micro_batch.clip_frames(k), 1);
            }
            break;
          case Media::kNone:
            break;
        }
      }
    }
  }
  for (const v1::StepTiming& timing : timings) {
    const v1::Role& role = timing.role();
    const auto found = owned.find(role.module());
    if (timing.step() != schedule.step() || found == owned.end() ||
        timing.micro_batch() >= found->second.size() ||
        role.dp_rank() >= found->second[timing.micro_batch()].size() ||
        !std::isfinite(timing.milliseconds()) || timing.milliseconds() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the timing of ", timing.milliseconds(), " ms of ",
          ModuleName(role.module()), " rank ", role.dp_rank(), " in step ",
          timing.step(), " micro-batch ", timing.micro_batch(),
          " does not fit the schedule of step ", schedule.step(), " of ",
          schedule.micro_batches_size(), " micro-batches"));
    }
    CostObservation observation =
        found->second[timing.micro_batch()][role.dp_rank()];
    observation.milliseconds = timing.milliseconds();
    (*observations)[role.module()].push_back(observation);
  }
  return absl::OkStatus();
}

}  // namespace ballast
