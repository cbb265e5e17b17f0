#include "server/corpus/mock/mock_lengths.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ballast {
namespace {

constexpr uint32_t kMostTokens = 1u << 24;

constexpr size_t kMostLengths = size_t{1} << 28;

// Reads the numbers of one line into `lengths`. Returns the first entry that is
// not a number, if any.
std::optional<absl::string_view> ReadLine(absl::string_view line,
                                          std::vector<uint32_t>* lengths) {
  for (const absl::string_view entry : absl::StrSplit(line, ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(entry);
    uint32_t length = 0;
    if (!absl::SimpleAtoi(text, &length) || length < 1 ||
        length > kMostTokens) {
      return text;
    }
    lengths->push_back(length);
  }
  return std::nullopt;
}

bool HoldsANumber(absl::string_view line) {
  for (const absl::string_view entry : absl::StrSplit(line, ',')) {
    double number = 0;
    if (absl::SimpleAtod(entry, &number)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseLengths(absl::string_view text) {
  std::vector<uint32_t> lengths;
  size_t number = 0;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(each);
    if (line.empty() || (number == 1 && !HoldsANumber(line))) continue;
    if (const auto wrong = ReadLine(line, &lengths)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": found \"", absl::CHexEscape(wrong->substr(0, 40)),
          "\"; wanted a whole number from 1 to ", kMostTokens));
    }
    if (lengths.size() > kMostLengths) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMostLengths, " lengths"));
    }
  }
  if (lengths.empty()) return absl::InvalidArgumentError("holds no length");
  return lengths;
}

absl::Status CheckLognormalLengths(const LognormalLengths& lengths) {
  const auto fault = [](absl::string_view what, auto found,
                        absl::string_view wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", found, "; wanted ", wanted));
  };
  if (lengths.min < 1 || lengths.min > kMostTokens) {
    return fault("min", lengths.min, "1 to 2^24 tokens");
  }
  if (lengths.max < 1 || lengths.max > kMostTokens) {
    return fault("max", lengths.max, "1 to 2^24 tokens");
  }
  if (lengths.min > lengths.max) {
    return fault("min", lengths.min,
                 absl::StrCat("at most max, which is ", lengths.max));
  }
  // Written so that NaN fails.
  if (!(lengths.mean > 0 && lengths.mean <= kMostTokens)) {
    return fault("mean", lengths.mean, "more than 0, to 2^24 tokens");
  }
  if (!(lengths.sigma >= 0 && lengths.sigma <= 100)) {
    return fault("sigma", lengths.sigma, "0 to 100");
  }
  return absl::OkStatus();
}

MockLengths::MockLengths(const LognormalLengths& lengths)
    : lengths_(lengths),
      mu_(std::log(lengths.mean) - lengths.sigma * lengths.sigma / 2) {}

uint32_t MockLengths::Next() {
  const double drawn = std::exp(mu_ + lengths_.sigma * NextNormal());
  return static_cast<uint32_t>(
      std::clamp<double>(drawn, lengths_.min, lengths_.max));
}

double MockLengths::NextUniform() {
  const double high = bits_() >> 5;
  const double low = bits_() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double MockLengths::NextNormal() {
  if (has_second_) {
    has_second_ = false;
    return second_;
  }
  double x, y, square;
  do {
    x = 2.0 * NextUniform() - 1.0;
    y = 2.0 * NextUniform() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(square) / square);
  // numpy uses the second coordinate first.
  second_ = factor * x;
  has_second_ = true;
  return factor * y;
}

}  // namespace ballast
