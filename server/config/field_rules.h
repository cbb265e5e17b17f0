#ifndef BALLAST_SERVER_CONFIG_FIELD_RULES_H_
#define BALLAST_SERVER_CONFIG_FIELD_RULES_H_

#include <limits>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Constraints on a field of proto/config.proto beyond its type.
struct FieldRule {
  // For strings: "" is a valid value.
  bool accepts_empty = false;
  // For numbers: bounds of an explicit value, both inclusive.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  // `min` itself is refused.
  bool above_min = false;
  // The word `auto` stands for 0.
  bool accepts_auto = false;
  // For messages: the word `off` leaves it out.
  bool accepts_off = false;
  // Written as 8GiB, 512MiB or a number of bytes.
  bool byte_size = false;
};

// Returns whether an explicit value is within the rule's bounds.
bool IsWithin(double value, const FieldRule& rule);

// Describes for a message the numbers that the rule allows in a type of that
// range. With `kind` "a whole number": "a whole number from 1 to 4096".
std::string DescribeNumbers(absl::string_view kind, const FieldRule& rule,
                            double type_min, double type_max);

// Keyed by the full name of a field: "ballast.v1.Batch.micro".
using FieldRules = absl::flat_hash_map<std::string, FieldRule>;

// The rules of v1::Config.
const FieldRules& ConfigFieldRules();

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_FIELD_RULES_H_
