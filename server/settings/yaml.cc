#include "server/settings/yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

bool AllDigits(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Receives a document's events and records its position.
class StartHandler : public YAML::EventHandler {
 public:
  KeyLocation start() const { return start_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    start_ = {mark.line + 1, mark.column + 1};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  KeyLocation start_;
};

std::string GetKind(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "nothing";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  return "a text";
}

absl::Status Wanted(absl::string_view key, const YAML::Node& node,
                    absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": found ", GetKind(node), "; wanted ", wanted));
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

std::optional<uint64_t> ParseCount(absl::string_view text) {
  if (absl::EndsWith(text, "i")) return ParseByteSize(absl::StrCat(text, "B"));
  return ParseUnsigned(text);
}

std::optional<double> ParseSeconds(absl::string_view text) {
  if (const std::optional<double> number = ParseReal(text)) return number;
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) ||
      duration == absl::InfiniteDuration() ||
      duration == -absl::InfiniteDuration()) {
    return std::nullopt;
  }
  return absl::ToDoubleSeconds(duration);
}

std::optional<double> ParseShare(absl::string_view text) {
  if (!absl::ConsumeSuffix(&text, "%")) return ParseReal(text);
  const std::optional<double> percent = ParseReal(text);
  if (!percent.has_value()) return std::nullopt;
  return *percent / 100;
}

std::optional<bool> ParseBool(absl::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::optional<KeyLocation> FindSecondDocument(const std::string& text) {
  // YAML::LoadAll never ends on a text that starts with a comma, which yaml-cpp
  // reads as an endless sequence of empty documents.
  StartHandler handler;
  bool has_first = false;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    has_first = parser.HandleNextDocument(handler);
    if (!has_first || !parser.HandleNextDocument(handler)) return std::nullopt;
    return handler.start();
  } catch (const YAML::Exception& e) {
    if (!has_first) return std::nullopt;
    return KeyLocation{e.mark.line + 1, e.mark.column + 1};
  }
}

absl::StatusOr<YAML::Node> ParseYaml(const std::string& text) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("not YAML: line ", error.mark.line + 1, ": ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not YAML: ", error.what()));
  }
}

YAML::Node FindKey(const YAML::Node& node, const std::string& key) {
  // An undefined node, which may be copied and asked, unlike YAML's zombie.
  const YAML::Node none(YAML::NodeType::Undefined);
  if (!node.IsDefined() || !node.IsMap()) return none;
  try {
    for (const auto& entry : node) {
      if (entry.first.IsScalar() && entry.first.Scalar() == key) {
        return entry.second;
      }
    }
  } catch (const std::exception&) {
  }
  return none;
}

absl::StatusOr<std::string> GetText(const YAML::Node& node,
                                    absl::string_view key) {
  if (!node.IsDefined() || !node.IsScalar()) {
    return Wanted(key, node, "a text");
  }
  return node.Scalar();
}

absl::StatusOr<std::vector<std::string>> GetTexts(const YAML::Node& node,
                                                  absl::string_view key,
                                                  size_t most) {
  std::vector<std::string> texts;
  if (node.IsDefined() && node.IsScalar()) return std::vector{node.Scalar()};
  if (!node.IsDefined() || !node.IsSequence()) {
    return Wanted(key, node, "a list of texts");
  }
  for (const auto& entry : node) {
    if (texts.size() == most) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": over ", most, " entries"));
    }
    BALLAST_ASSIGN_OR_RETURN(std::string text,
                             GetText(entry, absl::StrCat(key, "[]")));
    texts.push_back(std::move(text));
  }
  return texts;
}

absl::StatusOr<std::vector<std::string>> GetKeys(const YAML::Node& node,
                                                 absl::string_view key,
                                                 size_t most) {
  if (!node.IsDefined() || !node.IsMap()) return Wanted(key, node, "a map");
  std::vector<std::string> keys;
  for (const auto& entry : node) {
    if (keys.size() == most) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": over ", most, " entries"));
    }
    BALLAST_ASSIGN_OR_RETURN(std::string text, GetText(entry.first, key));
    keys.push_back(std::move(text));
  }
  return keys;
}

}  // namespace ballast
