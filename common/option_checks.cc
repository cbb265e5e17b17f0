#include "common/option_checks.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ballast {
namespace {

// "a", "a or b", "a, b or c".
std::string Alternatives(const std::vector<std::string>& choices) {
  if (choices.size() < 2) return absl::StrJoin(choices, "");
  return absl::StrCat(absl::StrJoin(choices.begin(), choices.end() - 1, ", "),
                      " or ", choices.back());
}

}  // namespace

std::string CheckWholeNumber(const std::string& given, uint64_t least,
                             uint64_t most) {
  uint64_t number = 0;
  const bool digits =
      std::all_of(given.begin(), given.end(), absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(given, &number) && number >= least &&
      number <= most) {
    return "";
  }
  std::string wanted = absl::StrCat("at least ", least);
  if (most < std::numeric_limits<uint64_t>::max()) {
    wanted = absl::StrCat(least, " to ", most);
  }
  return absl::StrCat("found ", given, "; wanted a whole number, ", wanted);
}

std::string CheckChoice(const std::string& given,
                        const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), given) != choices.end()) {
    return "";
  }
  return absl::StrCat("found ", given, "; wanted ", Alternatives(choices));
}

}  // namespace ballast
