#include "server/settings/config_keys.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/files/path_pattern.h"
#include "server/settings/yaml.h"

namespace ballast {
namespace {

using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// The bounds of a field's numbers, by its options and its type.
struct Bounds {
  double min = 0;
  double max = 0;
  bool above_min = false;

  bool Hold(double value) const {
    return value <= max && (above_min ? value > min : value >= min);
  }
};

Bounds GetBounds(const FieldDescriptor& field, const v1::Setting& setting) {
  Bounds bounds;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      bounds = {std::numeric_limits<int32_t>::min(),
                std::numeric_limits<int32_t>::max()};
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      bounds = {0, std::numeric_limits<uint32_t>::max()};
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      bounds = {0, static_cast<double>(std::numeric_limits<uint64_t>::max())};
      break;
    default:
      bounds = {std::numeric_limits<double>::lowest(),
                std::numeric_limits<double>::max()};
  }
  if (setting.has_min()) bounds.min = std::max(bounds.min, setting.min());
  if (setting.has_max()) bounds.max = std::min(bounds.max, setting.max());
  bounds.above_min = setting.above_min();
  return bounds;
}

// A bound in full unless that is unreadable.
std::string WriteBound(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value)
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrCat(value);
}

// A number of bytes as "1MiB".
std::string WriteByteSize(double value) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && value >= 1024 &&
         std::fmod(value, 1024) == 0) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(WriteBound(value), kUnits[unit]);
}

// A number of things as "4Mi".
std::string WriteCount(double value) {
  std::string text = WriteByteSize(value);
  text.pop_back();
  return text;
}

std::string DescribeNumbers(const FieldDescriptor& field,
                            const v1::Setting& setting) {
  const Bounds bounds = GetBounds(field, setting);
  std::string text = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
                         ? "a number"
                         : "a whole number";
  if (setting.unit() == v1::Setting::SECONDS) text = "seconds";
  if (setting.unit() == v1::Setting::BYTES) {
    text = absl::StrCat("a size from ", WriteByteSize(bounds.min), " to ",
                        WriteByteSize(bounds.max),
                        ", as 8GiB or a number of bytes");
  } else if (setting.unit() == v1::Setting::COUNT) {
    absl::StrAppend(&text, " from ", WriteBound(bounds.min), " to ",
                    WriteCount(bounds.max), ", as 4Mi or 4194304");
  } else if (bounds.above_min) {
    absl::StrAppend(&text, " above ", WriteBound(bounds.min), " and at most ",
                    WriteBound(bounds.max));
  } else if (bounds.max < 1e15) {
    absl::StrAppend(&text, " from ", WriteBound(bounds.min), " to ",
                    WriteBound(bounds.max));
  } else if (bounds.min > -1e15) {
    absl::StrAppend(&text, " of at least ", WriteBound(bounds.min));
  }
  if (setting.unit() == v1::Setting::SECONDS) {
    absl::StrAppend(&text, ", as 30 or 500ms");
  }
  if (setting.unit() == v1::Setting::SHARE) {
    absl::StrAppend(&text, ", as 0.01 or 1%");
  }
  if (!setting.zero().empty()) absl::StrAppend(&text, ", or ", setting.zero());
  return text;
}

std::optional<FieldValue> ParseNumber(const FieldDescriptor& field,
                                      const v1::Setting& setting,
                                      const std::string& text) {
  const Bounds bounds = GetBounds(field, setting);
  const auto checked = [&](auto number) -> std::optional<FieldValue> {
    if (!number || !bounds.Hold(static_cast<double>(*number))) {
      return std::nullopt;
    }
    return *number;
  };
  const v1::Setting::Unit unit = setting.unit();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return checked(unit == v1::Setting::SECONDS ? ParseSeconds(text)
                     : unit == v1::Setting::SHARE ? ParseShare(text)
                                                  : ParseReal(text));
    case FieldDescriptor::CPPTYPE_INT32:
      return checked(ParseSigned(text));
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      if (!setting.zero().empty() && (text == setting.zero() || text == "0")) {
        return uint64_t{0};
      }
      return checked(unit == v1::Setting::BYTES   ? ParseByteSize(text)
                     : unit == v1::Setting::COUNT ? ParseCount(text)
                                                  : ParseUnsigned(text));
    default:
      return std::nullopt;  // configurations use no other types
  }
}

// NAME and the words of Setting.only.
std::pair<std::string, std::vector<std::string>> SplitOnly(
    const v1::Setting& setting) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(setting.only(), absl::MaxSplits(": ", 1));
  return {parts.first, absl::StrSplit(parts.second, ", ")};
}

// The neighbour that decides whether the field has a meaning.
const FieldDescriptor& DecidingField(const FieldDescriptor& field) {
  return *field.containing_type()->FindFieldByName(
      SplitOnly(GetSetting(field)).first);
}

// "jsonl or parquet"
std::string JoinWords(std::vector<std::string> words) {
  const std::string last = words.back();
  words.pop_back();
  return words.empty() ? last
                       : absl::StrCat(absl::StrJoin(words, ", "), " or ", last);
}

// The key of an element of the field at `key`.
std::string ElementKey(const FieldDescriptor& field, const std::string& key,
                       const std::string& label) {
  if (!field.is_repeated()) return key;
  return field.is_map() ? ChildKey(key, Shown(label))
                        : absl::StrCat(key, "[", label, "]");
}

void CheckMessage(const Message& message, const std::string& parent,
                  KeyReport* report) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const v1::Setting& setting = GetSetting(field);
    const std::string key = ChildKey(parent, field.name());
    if (report->IsFaulty(key)) continue;
    const std::optional<bool> used = IsUsed(message, field, parent, *report);
    if (!used.has_value()) continue;
    if (!*used) {
      if (!report->Has(key)) continue;
      const FieldDescriptor& deciding = DecidingField(field);
      report->AddFault(
          key,
          absl::StrCat("found with ", deciding.name(), ": ",
                       ValueText(FieldElements(message, deciding)[0].value),
                       "; wanted it for ", deciding.name(), ": ",
                       JoinWords(SplitOnly(setting).second), " alone"));
      continue;
    }
    if (!report->Has(key)) {
      if (!setting.has_required()) continue;
      report->AddMissing(key, setting.required().empty()
                                  ? DescribeValue(field, setting)
                                  : setting.required());
      continue;
    }
    for (const FieldElement& element : FieldElements(message, field)) {
      const auto* child = std::get_if<const Message*>(&element.value);
      const std::string at = ElementKey(field, key, element.label);
      if (child == nullptr || IsAbsent(message, field) ||
          report->IsFaulty(at)) {
        continue;
      }
      CheckMessage(**child, at, report);
    }
  }
}

// What a change of the field takes, in a section of which a change takes
// `around`.
v1::Setting::Change GetChange(const FieldDescriptor& field,
                              v1::Setting::Change around) {
  const v1::Setting::Change change = GetSetting(field).change();
  return change == v1::Setting::CHANGE_UNSPECIFIED ? around : change;
}

// A value as messages show it, a text in quotes.
std::string Written(const FieldValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return Shown(text == nullptr
                   ? ValueText(value)
                   : absl::StrCat("\"", absl::CEscape(*text), "\""));
}

std::optional<KeyDifference> Compare(const Message& a, const Message& b,
                                     const std::string& parent,
                                     v1::Setting::Change around) {
  for (int i = 0; i < a.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *a.GetDescriptor()->field(i);
    const std::string key = ChildKey(parent, field.name());
    const v1::Setting::Change change = GetChange(field, around);
    const auto elements = [&](const Message& message) {
      std::vector<FieldElement> elements;
      if (!IsAbsent(message, field)) elements = FieldElements(message, field);
      return elements;
    };
    const std::vector<FieldElement> left = elements(a);
    const std::vector<FieldElement> right = elements(b);
    const auto find = [](const std::vector<FieldElement>& in,
                         const std::string& label) {
      return std::find_if(in.begin(), in.end(), [&](const FieldElement& e) {
        return e.label == label;
      });
    };
    for (const FieldElement& element : left) {
      const std::string at = ElementKey(field, key, element.label);
      const auto other = find(right, element.label);
      if (other == right.end()) {
        return KeyDifference{at, Written(element.value), "absent", change};
      }
      if (IsMessage(field) &&
          std::holds_alternative<const Message*>(element.value)) {
        auto difference =
            Compare(*std::get<const Message*>(element.value),
                    *std::get<const Message*>(other->value), at, change);
        if (difference.has_value()) return difference;
      } else if (element.value != other->value) {
        return KeyDifference{at, Written(element.value), Written(other->value),
                             change};
      }
    }
    for (const FieldElement& element : right) {
      if (find(left, element.label) != left.end()) continue;
      return KeyDifference{ElementKey(field, key, element.label), "absent",
                           Written(element.value), change};
    }
  }
  return std::nullopt;
}

void Adopt(const Message& wanted, v1::Setting::Change around,
           Message* running) {
  const Reflection& reflection = *wanted.GetReflection();
  for (int i = 0; i < wanted.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *wanted.GetDescriptor()->field(i);
    const v1::Setting::Change change = GetChange(field, around);
    if (!IsMessage(field) && change == v1::Setting::RELOAD) {
      reflection.ClearField(running, &field);
      if (IsAbsent(wanted, field)) continue;
      for (const FieldElement& element : FieldElements(wanted, field)) {
        SetField(running, field, element.value);
      }
    } else if (IsMessage(field) && !field.is_repeated() &&
               !IsAbsent(wanted, field) && !IsAbsent(*running, field)) {
      Adopt(reflection.GetMessage(wanted, &field), change,
            reflection.MutableMessage(running, &field));
    }
  }
}

// Whether the value is the one of a file without the key.
bool IsDefault(const Message& message, const FieldDescriptor& field) {
  if (field.is_repeated()) return FieldElements(message, field).empty();
  if (IsMessage(field)) return IsAbsent(message, field);
  const FieldValue value = FieldElements(message, field)[0].value;
  // UNSPECIFIED, which no loaded configuration holds: nothing was chosen.
  const auto* word = std::get_if<const EnumValueDescriptor*>(&value);
  if (word != nullptr && (*word)->number() == 0) return true;
  const std::string& text = GetSetting(field).default_();
  if (!text.empty())
    return ParseValue(field, GetSetting(field), text, true) == value;
  return !message.GetReflection()->HasField(message, &field);
}

// An entry's text, in which an enum has its name in the proto.
std::string EntryText(const FieldValue& value) {
  if (const auto* word = std::get_if<const EnumValueDescriptor*>(&value)) {
    return (*word)->name();
  }
  const auto* number = std::get_if<double>(&value);
  return number == nullptr ? ValueText(value) : FingerprintNumber(*number);
}

void AddEntries(const Message& message, const std::string& parent,
                v1::Setting::Fingerprint around,
                std::map<std::string, std::string>* entries) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    v1::Setting::Fingerprint kind = GetSetting(field).fingerprint();
    if (kind == v1::Setting::FINGERPRINT_UNSPECIFIED) kind = around;
    if (kind == v1::Setting::UNLESS_DEFAULT) {
      if (IsDefault(message, field)) continue;
      kind = v1::Setting::ALWAYS;
    }
    const std::string key = ChildKey(parent, field.name());
    std::vector<std::string> texts;
    for (const FieldElement& element : FieldElements(message, field)) {
      if (const auto* child = std::get_if<const Message*>(&element.value)) {
        std::string at = key;
        if (field.is_map()) {
          at = ChildKey(key, element.label);
        } else if (field.is_repeated()) {
          at = absl::StrFormat("%s.%04d", key, std::stoi(element.label));
        }
        AddEntries(**child, at, kind, entries);
      } else if (kind == v1::Setting::ALWAYS && field.is_map()) {
        (*entries)[ChildKey(key, element.label)] = EntryText(element.value);
      } else {
        texts.push_back(EntryText(element.value));
      }
    }
    // A list of sections without entries adds none.
    if (kind == v1::Setting::ALWAYS && !IsMessage(field)) {
      (*entries)[key] = absl::StrJoin(texts, ",");
    }
  }
}

}  // namespace

const v1::Setting& GetSetting(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::setting);
}

std::string DescribeValue(const FieldDescriptor& field,
                          const v1::Setting& setting) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of ",
                          absl::StrJoin(EnumWords(*field.enum_type()), ", "));
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    default:
      return DescribeNumbers(field, setting);
  }
}

std::optional<FieldValue> ParseValue(const FieldDescriptor& field,
                                     const v1::Setting& setting,
                                     const std::string& text, bool is_plain) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (text.empty() && !setting.empty()) return std::nullopt;
      return text;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = FindEnumWord(*field.enum_type(), text);
      if (value == nullptr) return std::nullopt;
      return value;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = ParseBool(text);
      if (!value || !is_plain) return std::nullopt;
      return *value;
    }
    default:
      // JSON has no other way to write 8GiB or `auto` than in quotes.
      if (!is_plain && setting.unit() == v1::Setting::UNIT_UNSPECIFIED &&
          (setting.zero().empty() || text != setting.zero())) {
        return std::nullopt;
      }
      return ParseNumber(field, setting, text);
  }
}

std::string WriteValue(const FieldDescriptor& field, const FieldValue& value) {
  const v1::Setting& setting = GetSetting(field);
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    if (*number == 0 && !setting.zero().empty()) return setting.zero();
    if (setting.unit() == v1::Setting::BYTES) {
      return WriteByteSize(static_cast<double>(*number));
    }
    if (setting.unit() == v1::Setting::COUNT) {
      return WriteCount(static_cast<double>(*number));
    }
  }
  return ValueText(value);
}

bool IsUsed(const Message& message, const FieldDescriptor& field) {
  if (GetSetting(field).only().empty()) return true;
  const std::vector<std::string> words = SplitOnly(GetSetting(field)).second;
  const std::string word =
      ValueText(FieldElements(message, DecidingField(field))[0].value);
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<bool> IsUsed(const Message& message, const FieldDescriptor& field,
                           absl::string_view parent, const KeyReport& report) {
  if (GetSetting(field).only().empty()) return true;
  const FieldDescriptor& deciding = DecidingField(field);
  const std::string key = ChildKey(parent, deciding.name());
  if (report.IsFaulty(key) ||
      (GetSetting(deciding).has_required() && !report.Has(key))) {
    return std::nullopt;
  }
  return IsUsed(message, field);
}

void CheckKeys(const Message& message, KeyReport* report) {
  CheckMessage(message, "", report);
}

void ResolvePaths(absl::string_view directory, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) continue;
    if (IsMessage(*field)) {
      if (!field->is_repeated()) {
        ResolvePaths(directory, reflection.MutableMessage(message, field));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        ResolvePaths(directory,
                     reflection.MutableRepeatedMessage(message, field, i));
      }
      continue;
    }
    const v1::Setting& setting = GetSetting(*field);
    if (!setting.path() || field->is_repeated()) continue;
    const std::string path = reflection.GetString(*message, field);
    if (path.empty() ||
        std::find(setting.words().begin(), setting.words().end(), path) !=
            setting.words().end()) {
      continue;
    }
    reflection.SetString(message, field, ResolvePath(directory, path));
  }
}

std::optional<KeyDifference> FirstDifference(const Message& a,
                                             const Message& b) {
  return Compare(a, b, "", v1::Setting::JOB);
}

void AdoptReloadable(const Message& wanted, Message* running) {
  Adopt(wanted, v1::Setting::JOB, running);
}

std::string FingerprintNumber(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    // std::stod throws where a value has fewer than 53 bits.
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

void AddFingerprint(const Message& message,
                    std::map<std::string, std::string>* entries) {
  AddEntries(message, "", v1::Setting::NEVER, entries);
}

}  // namespace ballast
