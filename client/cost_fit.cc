#include "client/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/schedule/image_columns.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

using Real = long double;
using Column = std::vector<Real>;

// A set of terms, one bit each.
using Terms = unsigned;
constexpr Terms kAllTerms = (1u << kCostTerms) - 1;

// A column is taken to depend on others when no more than this share of it is
// left without them, and times are not trusted any further.
constexpr Real kRelativePrecision = 1e-9L;
// What leaving terms out must add to the squared residuals, in units of the
// noise's variance a term, for the data to speak for them.
constexpr Real kSignificant = 4;

Real Dot(const Column& a, const Column& b) {
  Real sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Takes the direction of the unit vector `q` out of `v`; answers how much there
// was.
Real Project(const Column& q, Column* v) {
  const Real amount = Dot(q, *v);
  for (size_t i = 0; i < q.size(); ++i) (*v)[i] -= amount * q[i];
  return amount;
}

// Least squares of `target` over some of the columns.
struct Solution {
  bool independent = true;  // whether the columns are
  std::array<Real, kCostTerms> coefficients = {};
  Real residual = 0;  // sum of squares

  bool negative() const {
    return *std::min_element(coefficients.begin(), coefficients.end()) < 0;
  }
};

// By Gram-Schmidt, each column projected twice. Columns have length 1 (or 0),
// so that their scales do not matter.
Solution Solve(const std::array<Column, kCostTerms>& columns,
               const Column& target, Terms terms) {
  Solution solution;
  std::vector<int> taken;
  std::vector<Column> basis;
  std::array<std::array<Real, kCostTerms>, kCostTerms> upper = {};
  std::array<Real, kCostTerms> along = {};
  for (int term = 0; term < kCostTerms; ++term) {
    if (!(terms >> term & 1)) continue;
    Column left = columns[term];
    std::array<Real, kCostTerms> amounts = {};
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t k = 0; k < basis.size(); ++k) {
        amounts[k] += Project(basis[k], &left);
      }
    }
    const Real length = std::sqrt(Dot(left, left));
    if (length <= kRelativePrecision) {
      solution.independent = false;
      continue;
    }
    for (Real& value : left) value /= length;
    amounts[basis.size()] = length;
    upper[basis.size()] = amounts;
    taken.push_back(term);
    basis.push_back(std::move(left));
  }
  Column left = target;
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t k = 0; k < basis.size(); ++k) {
      along[k] += Project(basis[k], &left);
    }
  }
  solution.residual = Dot(left, left);
  for (size_t k = basis.size(); k-- > 0;) {
    Real value = along[k];
    for (size_t later = k + 1; later < basis.size(); ++later) {
      value -= upper[later][k] * solution.coefficients[taken[later]];
    }
    solution.coefficients[taken[k]] = value / upper[k][k];
  }
  return solution;
}

int Count(Terms terms) { return __builtin_popcount(terms); }

std::vector<CostTerm> List(Terms terms) {
  std::vector<CostTerm> list;
  for (int term = 0; term < kCostTerms; ++term) {
    if (terms >> term & 1) list.push_back(static_cast<CostTerm>(term));
  }
  return list;
}

// All least-squares solutions, by their terms.
using Solutions = std::array<Solution, kAllTerms + 1>;

// The terms of the best solution without a negative coefficient. `precision`:
// differences of squared residuals that mean nothing.
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

// The smallest set of terms of which any may be left out, but not all.
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
  std::array<Column, kCostTerms> columns;
  Column times;
  for (const CostObservation& each : observations) {
    for (const double value :
         {each.sum, each.sum_of_squares, each.milliseconds}) {
      if (!std::isfinite(value) || value < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "an observation holds ", value, ", wanted what is not negative"));
      }
    }
    columns[kLinear].push_back(each.sum);
    columns[kQuadratic].push_back(each.sum_of_squares);
    columns[kConstant].push_back(1);
    times.push_back(each.milliseconds);
  }
  std::array<Real, kCostTerms> scale;
  for (int term = 0; term < kCostTerms; ++term) {
    const Real length = std::sqrt(Dot(columns[term], columns[term]));
    scale[term] = length > 0 ? length : 1;
    for (Real& value : columns[term]) value /= scale[term];
  }

  Solutions solutions;
  for (Terms terms = 0; terms <= kAllTerms; ++terms) {
    solutions[terms] = Solve(columns, times, terms);
  }
  const Real precision =
      Dot(times, times) * kRelativePrecision * kRelativePrecision;
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
  Real mean = 0;
  for (const Real time : times) mean += time / count;
  Real variance = 0;
  for (const Real time : times) variance += (time - mean) * (time - mean);
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
  // What each rank owns in each slot of the step, of each module.
  std::map<v1::Module, std::vector<std::vector<CostObservation>>> owned;
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    for (const v1::ModuleSchedule& module : micro_batch.modules()) {
      auto& slots = owned[module.module()];
      slots.resize(schedule.micro_batches_size());
      for (auto& ranks : slots) {
        ranks.resize(std::max<size_t>(ranks.size(), module.load_after_size()));
      }
      const std::vector<uint32_t> first = FirstImages(micro_batch);
      for (int i = 0; i < micro_batch.tokens_size(); ++i) {
        CostObservation& rank = slots[micro_batch.slot(i)][module.owner(i)];
        const auto add = [&rank](double n) {
          rank.sum += n;
          rank.sum_of_squares += n * n;
        };
        if (module.module() == v1::MODULE_LANGUAGE) {
          add(micro_batch.tokens(i));
          continue;
        }
        for (uint32_t k = first[i]; k < first[i + 1]; ++k) {
          add(static_cast<double>(ImagePatches(micro_batch, k)));
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
