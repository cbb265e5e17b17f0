#ifndef BALLAST_SERVER_CORPUS_CHECK_CHECK_PLAN_H_
#define BALLAST_SERVER_CORPUS_CHECK_CHECK_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/index/image_mark.h"
#include "server/corpus/index/index_file.h"

namespace ballast {

// A part of a check, done and recorded as a whole: the images to check of the
// index's records [begin, end).
struct CheckUnit {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t images = 0;
  uint64_t bytes = 0;  // of these images

  friend bool operator==(const CheckUnit&, const CheckUnit&) = default;
};

// A unit ends with the record that reaches either bound. A check that is killed
// loses at most one unit a thread.
struct CheckUnitSize {
  uint64_t bytes = uint64_t{64} << 20;
  uint64_t images = 1024;
};

// Returns whether `index --check` still has to read an image.
inline bool NeedsCheck(ImageMark mark) {
  return mark.is_marked() && mark.check() == ImageCheckResult::kUnchecked;
}

// Cuts the check of `index`, which Verify has found sound, into units in order
// of records; a unit has at least one image. Depends on the index alone.
std::vector<CheckUnit> PlanCheck(const IndexFile& index,
                                 const CheckUnitSize& size = {});

// One of `count` parts of a check that run apart, e.g. on a machine each.
struct CheckShard {
  uint32_t number = 1;  // 1 to count
  uint32_t count = 1;   // 1 to 65536

  friend bool operator==(const CheckShard&, const CheckShard&) = default;
};

// Reads "3/8". Errors: INVALID_ARGUMENT.
absl::StatusOr<CheckShard> ParseCheckShard(absl::string_view text);

// The units [begin, end) of a shard. Those of all shards follow one another.
struct CheckUnitRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};
CheckUnitRange UnitsOf(const CheckShard& shard, uint64_t num_units);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_CHECK_CHECK_PLAN_H_
