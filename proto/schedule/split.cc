#include "proto/schedule/split.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ballast {

absl::string_view SplitName(v1::Split split) {
  switch (split) {
    case v1::SPLIT_TRAIN:
      return "train";
    case v1::SPLIT_VALID:
      return "valid";
    case v1::SPLIT_TEST:
      return "test";
    default:
      return "unspecified";
  }
}

std::optional<v1::Split> ParseSplit(absl::string_view name) {
  for (const v1::Split split :
       {v1::SPLIT_TRAIN, v1::SPLIT_VALID, v1::SPLIT_TEST}) {
    if (name == SplitName(split)) return split;
  }
  return std::nullopt;
}

std::string SplitWord(v1::Split split) {
  return split == v1::SPLIT_TRAIN ? "" : absl::StrCat(SplitName(split), " ");
}

absl::Status CheckSplit(const v1::Job& job, v1::Split split) {
  std::vector<absl::string_view> names;
  for (const int known : job.splits()) {
    if (known == split) return absl::OkStatus();
    names.push_back(SplitName(static_cast<v1::Split>(known)));
  }
  if (names.empty()) {
    if (split == v1::SPLIT_TRAIN) return absl::OkStatus();
    names.push_back(SplitName(v1::SPLIT_TRAIN));
  }
  const std::string wanted =
      v1::Split_IsValid(split)
          ? std::string(SplitName(split))
          : absl::StrCat("number ", static_cast<int>(split));
  return absl::InvalidArgumentError(absl::StrCat(
      "split ", wanted, " was asked for, but no source has `split: ", wanted,
      "` (sources[].split); the job has ", absl::StrJoin(names, ", ")));
}

}  // namespace ballast
