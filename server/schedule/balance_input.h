#ifndef BALLAST_SERVER_SCHEDULE_BALANCE_INPUT_H_
#define BALLAST_SERVER_SCHEDULE_BALANCE_INPUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ballast {

// Checks the input of a balancer. Errors: INVALID_ARGUMENT (no groups; with
// `equal_count` a number of costs that is not a multiple of the groups; a cost
// that is negative or not finite).
absl::Status CheckBalanceInput(absl::Span<const double> costs, uint32_t groups,
                               bool equal_count);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_BALANCE_INPUT_H_
