#ifndef BALLAST_CLIENT_BALLASTCTL_COST_FIT_H_
#define BALLAST_CLIENT_BALLASTCTL_COST_FIT_H_

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Fits the times of a module's micro-batches to what its ranks owned in them:
//   milliseconds = linear * sum(n) + quadratic * sum(n*n) + constant
// summed over the rank's images, n = patches (vision), or samples, n = tokens
// (language). Pure.

// One micro-batch of one rank.
struct CostObservation {
  double sum = 0;             // of n over what the rank owns
  double sum_of_squares = 0;  // of n*n
  double milliseconds = 0;
};

using CostObservations = std::map<v1::Module, std::vector<CostObservation>>;

// Adds an observation for each of `timings`, which all belong to the step of
// `schedule`. `schedule` must have passed CheckColumns. Dummy images do not
// count. Errors: INVALID_ARGUMENT (a timing of another step, or of a role or
// micro-batch that the schedule does not have; a time that is negative or not
// finite).
absl::Status AddObservations(const v1::StepSchedule& schedule,
                             absl::Span<const v1::StepTiming> timings,
                             CostObservations* observations);

enum CostTerm { kLinear = 0, kQuadratic = 1, kConstant = 2 };
inline constexpr int kCostTerms = 3;
// "linear", "quadratic", "constant".
const char* CostTermName(CostTerm term);

struct CostFit {
  // By CostTerm; none is negative. Milliseconds per n, per n*n, per
  // micro-batch.
  std::array<double, kCostTerms> coefficients = {};
  size_t observations = 0;
  // Root mean square of the residuals, in milliseconds.
  double rms = 0;
  // Share of the times' variance that the fit explains; absent if all times are
  // equal.
  std::optional<double> r_squared;
  // Terms set to 0 because a coefficient would be negative with them, or
  // because they explain nothing further.
  std::vector<CostTerm> left_out;
  // Terms that the data cannot separate: the times are explained as well
  // without any one of them (within four times the noise, about 95 %), but not
  // without all of them. Their single coefficients mean little. Two or three
  // terms, or none.
  std::vector<CostTerm> confounded;
};

inline constexpr size_t kMinObservations = 8;

// Non-negative least squares: takes the set of terms with the least residual
// among the sets whose least-squares coefficients are all non-negative. If
// terms depend on each other exactly, it takes the fewest terms with that
// residual, linear before quadratic before constant. Errors: INVALID_ARGUMENT
// (fewer than kMinObservations, values that are negative or not finite).
absl::StatusOr<CostFit> FitCost(absl::Span<const CostObservation> observations);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_COST_FIT_H_
