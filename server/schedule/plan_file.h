#ifndef BALLAST_SERVER_SCHEDULE_PLAN_FILE_H_
#define BALLAST_SERVER_SCHEDULE_PLAN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sample/sample_source.h"
#include "server/schedule/plan_steps.h"

namespace ballast {

// A source whose samples a plan file may name.
struct PlanSource {
  std::string name;
  bool is_train = true;
  // Not owned; lives as long as the rows.
  const SampleSource* samples = nullptr;
};

// Opens a plan file (docs/plans.md) and checks every row. `sources[i]` belongs
// to config.sources(i). Blocks on the disk: reads the whole file once, and, if
// it names samples by their keys, the text of every sample of the sources that
// it names, of which up to 32 bytes each stay in memory. Else what stays in
// memory is 8 bytes a step, a checksum and the counts of the sources a row
// group, and row groups that were read last, at 16 bytes a row, as
// RowGroupCache bounds them. Errors: as PlanTable::Open and Read;
// INVALID_ARGUMENT, naming the row, counted from 0:
//   a step that is below the previous row's, or leaves one out; a source
//   that the configuration or its split train does not have; a number that the
//   index does not have, a key that no sample has, or several; a sample that is
//   twice in a step under one `repeat`; a step of rows with and without packs;
//   packs of a step that are not numbered from 0 without a gap; micro-batches
//   that are not in order, or of different sizes in a step without packs.
absl::StatusOr<std::unique_ptr<const PlanRows>> OpenPlanFile(
    const std::string& path, std::vector<PlanSource> sources);

// Files of the starts of steps (server/schedule/filled_steps.h), which save a
// server the time of finding them at its start: the text BLLSTEPS, their number
// and the XXH3-64 of what follows, and each start, as little-endian u64.

// The starts in the file; none if there is no such file, or it is damaged.
// Blocks on the disk.
std::vector<uint64_t> LoadStepTable(const std::string& path);

// Writes the file, next to `path` first. Blocks on the disk. Errors:
// UNAVAILABLE.
absl::Status SaveStepTable(const std::string& path,
                           const std::vector<uint64_t>& starts);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PLAN_FILE_H_
