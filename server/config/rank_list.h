#ifndef BALLAST_SERVER_CONFIG_RANK_LIST_H_
#define BALLAST_SERVER_CONFIG_RANK_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// Parses "0-3,6" into {0, 1, 2, 3, 6}, and the empty text into {}. The result
// is ascending, whatever the order of the parts. Blanks around parts are
// ignored. Errors: INVALID_ARGUMENT (not a number, a descending range, a
// repeated rank, a rank of 2^20 or more).
absl::StatusOr<std::vector<uint32_t>> ParseRankList(absl::string_view text);

// The inverse: {0, 1, 2, 3, 6} -> "0-3,6". `ranks` is ascending.
std::string FormatRankList(absl::Span<const uint32_t> ranks);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_RANK_LIST_H_
