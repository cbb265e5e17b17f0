#include "server/settings/source_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/message_fields.h"
#include "proto/block/block_layout.h"
#include "server/settings/config_keys.h"
#include "server/settings/key_report.h"

namespace ballast {
namespace {

using Field = v1::Source::Field;

// "float32 token", as the configuration writes them.
std::string Describe(const FieldSpec& spec) {
  return absl::StrCat(
      EnumWord(*Field::Type_descriptor()->FindValueByNumber(spec.type)),
      " per ", EnumWord(*Field::Per_descriptor()->FindValueByNumber(spec.per)));
}

// "advantage: float32 per sample, channel: int32 per sample"
std::string Describe(const std::vector<FieldSpec>& specs) {
  if (specs.empty()) return "none";
  std::string text;
  for (const FieldSpec& spec : specs) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", spec.name, ": ",
                    Describe(spec));
  }
  return text;
}

bool IsName(absl::string_view name) {
  constexpr size_t kMaxLength = 64;
  return !name.empty() && name.size() <= kMaxLength &&
         !absl::ascii_isdigit(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

void CheckField(const FieldSpec& spec, const std::string& key,
                KeyReport* report) {
  if (!IsName(spec.name)) {
    return report->AddFault(
        key, absl::StrCat("found ", Shown(spec.name),
                          "; wanted letters, digits and _, a letter or _ "
                          "first, at most 64 of them"));
  }
  if (report->HasFaultWithin(key)) return;
  if (spec.type == Field::TYPE_INT32 && spec.missing.has_value() &&
      (*spec.missing != std::floor(*spec.missing) ||
       std::abs(*spec.missing) > std::numeric_limits<int32_t>::max())) {
    report->AddFault(ChildKey(key, "default"),
                     absl::StrCat("found ", *spec.missing,
                                  "; wanted a whole number of 32 bits with "
                                  "type: int32"));
  }
  if (spec.name == kWeightField &&
      (spec.type != Field::TYPE_FLOAT32 || spec.per != Field::PER_TURN ||
       spec.missing != 1)) {
    report->AddFault(key, absl::StrCat("found ", Describe(spec),
                                       "; wanted {type: float32, per: turn, "
                                       "default: 1}: this field is the weight "
                                       "of each message, which scales "
                                       "loss_mask"));
  }
}

// Whether records of the format hold keys or columns.
bool HasKeys(v1::Source::Format format) {
  return format == v1::Source::FORMAT_WEBDATASET ||
         format == v1::Source::FORMAT_JSONL ||
         format == v1::Source::FORMAT_PARQUET ||
         format == v1::Source::FORMAT_ENERGON;
}

bool AreSame(const std::vector<FieldSpec>& a, const std::vector<FieldSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const FieldSpec& one, const FieldSpec& other) {
                      return one.name == other.name && one.type == other.type &&
                             one.per == other.per;
                    });
}

}  // namespace

std::vector<FieldSpec> GetFieldSpecs(const v1::Source& source) {
  std::vector<FieldSpec> specs;
  for (const auto& [name, field] : source.fields()) {
    FieldSpec& spec = specs.emplace_back();
    spec.name = name;
    spec.type = field.type();
    spec.per = field.per();
    if (field.has_default_()) spec.missing = field.default_();
  }
  std::sort(
      specs.begin(), specs.end(),
      [](const FieldSpec& a, const FieldSpec& b) { return a.name < b.name; });
  return specs;
}

std::vector<v1::Job::Field> GetJobFields(const v1::Config& config) {
  std::vector<v1::Job::Field> fields;
  if (config.sources().empty()) return fields;
  for (const FieldSpec& spec : GetFieldSpecs(config.sources(0))) {
    v1::Job::Field& field = fields.emplace_back();
    field.set_name(spec.name);
    field.set_type(spec.type);
    field.set_per(spec.per);
  }
  return fields;
}

std::string FieldsKey(const v1::Source& source) {
  std::string key;
  for (const FieldSpec& spec : GetFieldSpecs(source)) {
    absl::StrAppend(
        &key, "field ", spec.name, " ", Describe(spec),
        spec.missing.has_value()
            ? absl::StrCat(" default ", FingerprintNumber(*spec.missing))
            : "",
        "\n");
  }
  return key;
}

void AddFieldEntries(const v1::Config& config,
                     std::map<std::string, std::string>* entries) {
  for (const v1::Source& source : config.sources()) {
    for (const FieldSpec& spec : GetFieldSpecs(source)) {
      const std::string key = absl::StrCat("fields.", spec.name);
      (*entries)[key] = Describe(spec);
      if (!spec.missing.has_value()) continue;
      (*entries)[absl::StrCat(key, ".default.", source.name())] =
          FingerprintNumber(*spec.missing);
    }
  }
}

void ValidateFields(const v1::Config& config, KeyReport* report) {
  const auto is_sound = [&](int i) {
    return !report->HasFaultWithin(ChildKey(ItemKey("sources", i), "fields")) &&
           !report->IsFaulty(ItemKey("sources", i));
  };
  for (int i = 0; i < config.sources_size(); ++i) {
    const v1::Source& source = config.sources(i);
    const std::string key = ChildKey(ItemKey("sources", i), "fields");
    if (report->IsFaulty(key) || source.fields().empty()) continue;
    if (!HasKeys(source.format())) {
      if (report->IsFaulty(ChildKey(ItemKey("sources", i), "format"))) continue;
      report->AddFault(key,
                       "found with a format whose records have no keys; "
                       "wanted it for format: webdataset, jsonl, parquet or "
                       "energon alone");
      continue;
    }
    if (source.fields_size() > static_cast<int>(kMaxFields)) {
      report->AddFault(key,
                       absl::StrCat("found ", source.fields_size(),
                                    " fields; wanted at most ", kMaxFields));
      continue;
    }
    for (const FieldSpec& spec : GetFieldSpecs(source)) {
      CheckField(spec, ChildKey(key, Shown(spec.name)), report);
    }
  }
  if (config.sources().empty() || !is_sound(0)) return;
  const std::vector<FieldSpec> first = GetFieldSpecs(config.sources(0));
  for (int i = 1; i < config.sources_size(); ++i) {
    const std::vector<FieldSpec> other = GetFieldSpecs(config.sources(i));
    if (!is_sound(i) || AreSame(first, other)) continue;
    report->AddFault(
        ChildKey(ItemKey("sources", i), "fields"),
        absl::StrCat("found ", Describe(other),
                     "; wanted the same as sources[0], ", Describe(first),
                     ": a batch holds samples of all sources, so give a field "
                     "that one of them lacks a default there"));
  }
}

namespace {

constexpr std::pair<const char*, RowFilter::Operator> kOperators[] = {
    // Longer ones first: "<=" begins with "<".
    {"==", RowFilter::Operator::kEqual},  {"!=", RowFilter::Operator::kUnequal},
    {"<=", RowFilter::Operator::kAtMost}, {">=", RowFilter::Operator::kAtLeast},
    {"<", RowFilter::Operator::kLess},    {">", RowFilter::Operator::kGreater},
};

template <typename T>
bool Compare(RowFilter::Operator op, const T& a, const T& b) {
  switch (op) {
    case RowFilter::Operator::kEqual:
      return a == b;
    case RowFilter::Operator::kUnequal:
      return a != b;
    case RowFilter::Operator::kLess:
      return a < b;
    case RowFilter::Operator::kAtMost:
      return a <= b;
    case RowFilter::Operator::kGreater:
      return a > b;
    case RowFilter::Operator::kAtLeast:
      return a >= b;
  }
  return false;
}

}  // namespace

bool RowFilter::Passes(double value) const {
  return !is_text && Compare(op, value, number);
}

bool RowFilter::Passes(absl::string_view value) const {
  return is_text && Compare(op, value, absl::string_view(text));
}

absl::StatusOr<RowFilter> ParseRowFilter(absl::string_view filter) {
  const auto wanted = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", Shown(filter), "; wanted ", what));
  };
  const size_t at = filter.find_first_of("=!<>");
  RowFilter parsed;
  parsed.column = std::string(absl::StripAsciiWhitespace(filter.substr(0, at)));
  if (at == absl::string_view::npos || parsed.column.empty()) {
    return wanted("a column, one of == != < <= > >= and a value");
  }
  absl::string_view rest = filter.substr(at);
  bool found = false;
  for (const auto& [name, op] : kOperators) {
    if (!absl::ConsumePrefix(&rest, name)) continue;
    parsed.op = op;
    found = true;
    break;
  }
  if (!found) return wanted("one of == != < <= > >= after the column");
  rest = absl::StripAsciiWhitespace(rest);
  if (rest.size() >= 2 && rest.front() == '"' && rest.back() == '"') {
    rest = rest.substr(1, rest.size() - 2);
    if (rest.find('"') != absl::string_view::npos) {
      return wanted("no double quote inside the text");
    }
    parsed.is_text = true;
    parsed.text = std::string(rest);
    return parsed;
  }
  const std::string lower = absl::AsciiStrToLower(rest);
  if (lower == "true" || lower == "false") {
    return wanted("1 for true and 0 for false, as booleans are compared");
  }
  if (!absl::SimpleAtod(rest, &parsed.number) ||
      !std::isfinite(parsed.number)) {
    return wanted("a number, or a text in double quotes, as the value");
  }
  // Values are compared as doubles: neighbours of a larger one are equal to it.
  constexpr double kMaxExact = 0x1p53;
  const bool is_equality = parsed.op == RowFilter::Operator::kEqual ||
                           parsed.op == RowFilter::Operator::kUnequal;
  if (is_equality && std::abs(parsed.number) >= kMaxExact) {
    return wanted(
        "a number of less than 2^53 after == and !=, as doubles do not "
        "distinguish larger ones");
  }
  return parsed;
}

}  // namespace ballast
