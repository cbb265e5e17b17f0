#ifndef BALLAST_SERVER_CONFIG_RANK_LIST_H_
#define BALLAST_SERVER_CONFIG_RANK_LIST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// "0-3,6" -> {0, 1, 2, 3, 6}; the empty text -> {}. Ascending. Errors:
// INVALID_ARGUMENT (not a number, a range that falls, a rank twice, a rank of
// 2^20 or more).
absl::StatusOr<std::vector<uint32_t>> ParseRankList(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_RANK_LIST_H_
