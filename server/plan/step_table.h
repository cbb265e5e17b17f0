#ifndef BALLAST_SERVER_PLAN_STEP_TABLE_H_
#define BALLAST_SERVER_PLAN_STEP_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ballast {

// Files of the starts of steps (server/schedule/token_steps.h), which save a
// server the time of finding them at its start: the text BLLSTEPS, their number
// and the XXH3-64 of what follows, and each start, as little-endian u64.

// The starts in the file; none if there is no such file, or it is damaged.
// Blocks on the disk.
std::vector<uint64_t> LoadStepTable(const std::string& path);

// Writes the file, beside `path` first. Blocks on the disk. Errors:
// UNAVAILABLE.
absl::Status SaveStepTable(const std::string& path,
                           const std::vector<uint64_t>& starts);

}  // namespace ballast

#endif  // BALLAST_SERVER_PLAN_STEP_TABLE_H_
