#include "server/config/yaml_scalar.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

bool AllDigits(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

std::optional<int64_t> ParseSigned(absl::string_view text) {
  absl::string_view digits = text;
  if (!absl::ConsumePrefix(&digits, "-")) absl::ConsumePrefix(&digits, "+");
  int64_t value = 0;
  if (!AllDigits(digits) || !absl::SimpleAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<uint64_t> ParseUnsigned(absl::string_view text) {
  uint64_t value = 0;
  if (!AllDigits(text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> ParseReal(absl::string_view text) {
  // SimpleAtod also accepts "nan", "infinity" and hexadecimal.
  if (text.find_first_not_of("0123456789.+-eE") != absl::string_view::npos) {
    return std::nullopt;
  }
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<uint64_t> ParseByteSize(absl::string_view text) {
  struct Unit {
    const char* suffix;
    double bytes;
  };
  // Longer suffixes first: "GiB" ends in "B" too.
  constexpr Unit kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                             {"TiB", 0x1p40}, {"kB", 1e3},     {"KB", 1e3},
                             {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                             {"B", 1}};
  if (const auto whole = ParseUnsigned(text)) {
    if (*whole >= uint64_t{1} << 63) return std::nullopt;
    return whole;
  }
  double unit = 1;
  for (const Unit& candidate : kUnits) {
    if (absl::ConsumeSuffix(&text, candidate.suffix)) {
      unit = candidate.bytes;
      break;
    }
  }
  const std::optional<double> number = ParseReal(text);
  if (!number.has_value()) return std::nullopt;
  const double bytes = *number * unit;
  if (bytes < 0 || bytes >= 0x1p63 || bytes != std::floor(bytes)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

std::optional<bool> ParseBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

}  // namespace ballast
