#ifndef BALLAST_SERVER_SCHEDULE_PLAN_ROWS_H_
#define BALLAST_SERVER_SCHEDULE_PLAN_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ballast {

// A sample of a plan file, in the order of its step.
struct PlanRow {
  static constexpr uint32_t kNoPack = UINT32_MAX;

  uint64_t ordinal = 0;  // in the source's index
  uint32_t source = 0;   // in config.sources
  uint32_t pack = kNoPack;
  uint64_t epoch = 0;  // by which a recipe draws

  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

// The rows of a plan file (order.plan), numbered from 0 in their order, all of
// which have passed its checks (server/plan/plan_file.h). Immutable;
// thread-safe.
class PlanRows {
 public:
  virtual ~PlanRows() = default;

  // The first step. Its steps are consecutive.
  virtual uint64_t first_step() const = 0;
  // The first row of each step, and the number of rows behind them.
  virtual absl::Span<const uint64_t> starts() const = 0;
  // Whether every row of the step has a pack; else none has.
  virtual bool HasPacks(uint64_t step) const = 0;
  // 32 hexadecimal digits over steps, samples and packs.
  virtual const std::string& digest() const = 0;

  // Rows `first` to `first + count - 1`, which exist. Blocks on the disk.
  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED (the file cannot be read now),
  // DATA_LOSS (it has changed since it was opened).
  virtual absl::StatusOr<std::vector<PlanRow>> Read(uint64_t first,
                                                    uint64_t count) const = 0;

  // How often each of config.sources occurs in the first `rows` rows. Blocks on
  // the disk. Errors: as Read.
  virtual absl::StatusOr<std::vector<uint64_t>> CountSources(
      uint64_t rows) const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PLAN_ROWS_H_
