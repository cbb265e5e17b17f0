#ifndef BALLAST_PROTO_SCHEDULE_SPLIT_H_
#define BALLAST_PROTO_SCHEDULE_SPLIT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/split.pb.h"

namespace ballast {

// The name of a split in YAML, JSON and messages: "train", "valid" or "test";
// "unspecified" for any other value.
absl::string_view SplitName(v1::Split split);

// The split of that name, or nullopt.
std::optional<v1::Split> ParseSplit(absl::string_view name);

// "valid " in front of what a message says of another split than train; empty
// for train, which goes without saying.
std::string SplitWord(v1::Split split);

// OK if the job has the split. Otherwise INVALID_ARGUMENT naming the key that
// gives a source its split, and the splits that the job has.
absl::Status CheckSplit(const v1::Job& job, v1::Split split);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SPLIT_H_
