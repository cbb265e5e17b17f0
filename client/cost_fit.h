#ifndef BALLAST_CLIENT_COST_FIT_H_
#define BALLAST_CLIENT_COST_FIT_H_

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/schedule.pb.h"
#include "proto/timing.pb.h"

namespace ballast {

// Fits what a module's micro-batches took to what its ranks owned in them:
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

// Adds an observation for each of `timings`, which are all of the step of
// `schedule` (one that has passed CheckColumns). Dummy images count nothing.
// Errors: INVALID_ARGUMENT (a timing of another step, or of a role or
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
  // By CostTerm; none is negative. Milliseconds a unit of n, of n*n, a
  // micro-batch.
  std::array<double, kCostTerms> coefficients = {};
  size_t observations = 0;
  // Of the residuals: root of their mean square, in milliseconds.
  double rms = 0;
  // Share of the times' variance that the fit explains; none where all times
  // are equal.
  std::optional<double> r_squared;
  // Terms that are 0 because with them a coefficient comes out negative, or
  // nothing is explained that is not without them.
  std::vector<CostTerm> left_out;
  // Terms that the data cannot tell apart: the times are explained as well
  // without any of them as long as not all are left out (by four times the
  // noise, about 95 %). Their coefficients mean little one by one. Two or three
  // terms, or none.
  std::vector<CostTerm> confounded;
};

inline constexpr size_t kMinObservations = 8;

// Least squares under coefficients that are not negative: of all choices of
// terms whose own least-squares coefficients are none of them negative, the one
// that leaves least. Where terms depend on each other exactly, the fewest terms
// that leave as little are taken, linear before quadratic before constant.
// Errors: INVALID_ARGUMENT (fewer than kMinObservations, values that are
// negative or not finite).
absl::StatusOr<CostFit> FitCost(absl::Span<const CostObservation> observations);

}  // namespace ballast

#endif  // BALLAST_CLIENT_COST_FIT_H_
