#ifndef BALLAST_SERVER_CONFIG_FIELD_RULES_H_
#define BALLAST_SERVER_CONFIG_FIELD_RULES_H_

#include <limits>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ballast {

// What the type of a field in proto/config.proto does not say.
struct FieldRule {
  // Of a string: "" is a value too.
  bool accepts_empty = false;
  // The rest is of numbers. Bounds of an explicit value, both included.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  // `min` itself is refused.
  bool above_min = false;
  // The word `auto` is written for 0.
  bool accepts_auto = false;
  // Written as 8GiB, 512MiB or a number of bytes.
  bool byte_size = false;
};

// Whether an explicit value obeys the rule.
bool IsWithin(double value, const FieldRule& rule);

// What numbers the rule allows in a type of that range, for a message: `kind`
// is "a number" or "a whole number", the result "a whole number from 1 to
// 4096".
std::string DescribeNumbers(absl::string_view kind, const FieldRule& rule,
                            double type_min, double type_max);

// By the full name of a field: "ballast.v1.Batch.micro".
using FieldRules = absl::flat_hash_map<std::string, FieldRule>;

// The rules of v1::Config.
const FieldRules& ConfigFieldRules();

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_FIELD_RULES_H_
