#include "server/corpus/check/check_plan.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ballast {
namespace {

constexpr uint32_t kMostShards = 65536;

}  // namespace

std::vector<CheckUnit> PlanCheck(const IndexFile& index,
                                 const CheckUnitSize& size) {
  std::vector<CheckUnit> units;
  CheckUnit unit;
  for (uint64_t record = 0; record < index.num_records(); ++record) {
    for (const ImageMark mark : index.marks(record)) {
      if (!NeedsCheck(mark)) continue;
      ++unit.images;
      unit.bytes += mark.bytes();
    }
    unit.end = record + 1;
    if (unit.images < size.images && unit.bytes < size.bytes) continue;
    units.push_back(unit);
    unit = {};
    unit.begin = record + 1;
  }
  if (unit.images > 0) units.push_back(unit);
  return units;
}

absl::StatusOr<CheckShard> ParseCheckShard(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  CheckShard shard;
  if (!absl::SimpleAtoi(parts.first, &shard.number) ||
      !absl::SimpleAtoi(parts.second, &shard.count) || shard.number < 1 ||
      shard.number > shard.count || shard.count > kMostShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", text,
                     ", wanted I/N with I from 1 to N and N of "
                     "at most ",
                     kMostShards));
  }
  return shard;
}

CheckUnitRange UnitsOf(const CheckShard& shard, uint64_t num_units) {
  const auto begin = [&](uint64_t number) {
    return num_units / shard.count * number +
           num_units % shard.count * number / shard.count;
  };
  return {begin(shard.number - 1), begin(shard.number)};
}

}  // namespace ballast
