#include "server/schedule/balance_input.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace ballast {

absl::Status CheckBalanceInput(absl::Span<const double> costs, uint32_t groups,
                               bool equal_count) {
  if (groups == 0) {
    return absl::InvalidArgumentError("groups is 0; wanted at least 1");
  }
  if (equal_count && costs.size() % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(costs.size(), " costs do not divide into ", groups,
                     " groups of equal count"));
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!std::isfinite(costs[i]) || costs[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cost ", i, " is ", costs[i],
                       "; wanted a finite number of 0 or more"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ballast
