#include "server/config/config_difference.h"

#include <map>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/config/key_report.h"

namespace ballast {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::TextFormat;

// A value of `field` as text; `index` is -1 unless the field is repeated.
struct Value {
  const Message* holder = nullptr;
  const FieldDescriptor* field = nullptr;
  int index = -1;
};

bool IsMessage(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

const Message& MessageOf(const Value& value) {
  const Reflection& reflection = *value.holder->GetReflection();
  return value.index < 0 ? reflection.GetMessage(*value.holder, value.field)
                         : reflection.GetRepeatedMessage(
                               *value.holder, value.field, value.index);
}

std::string Written(const Value& value) {
  if (IsMessage(value.field)) return "a section";
  std::string text;
  TextFormat::PrintFieldValueToString(*value.holder, value.field, value.index,
                                      &text);
  if (value.field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) {
    return text;
  }
  // DELIVERY_EXCHANGE becomes EXCHANGE: DELIVERY_UNSPECIFIED has the prefix.
  std::string prefix = value.field->enum_type()->value(0)->name();
  prefix.resize(absl::StripSuffix(prefix, "UNSPECIFIED").size());
  return absl::AsciiStrToLower(absl::StripPrefix(text, prefix));
}

// The values in `message` with their keys, in the order of the fields.
std::vector<std::pair<std::string, Value>> ValuesOf(const Message& message,
                                                    const std::string& parent) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<std::pair<std::string, Value>> values;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string key = ChildKey(parent, field->name());
    if (!field->is_repeated()) {
      // Numbers and texts without presence are always included.
      if (!field->has_presence() || reflection.HasField(message, field)) {
        values.push_back({key, {&message, field, -1}});
      }
      continue;
    }
    // Sorted, since maps have no order.
    std::map<std::string, Value> entries;
    for (int j = 0; j < reflection.FieldSize(message, field); ++j) {
      if (!field->is_map()) {
        values.push_back({ItemKey(key, j), {&message, field, j}});
        continue;
      }
      const Message& entry = reflection.GetRepeatedMessage(message, field, j);
      const auto* key_field = entry.GetDescriptor()->map_key();
      entries[ChildKey(key,
                       entry.GetReflection()->GetString(entry, key_field))] = {
          &entry, entry.GetDescriptor()->map_value(), -1};
    }
    values.insert(values.end(), entries.begin(), entries.end());
  }
  return values;
}

std::optional<ConfigDifference> Compare(const Message& a, const Message& b,
                                        const std::string& parent) {
  const auto left = ValuesOf(a, parent);
  const auto right = ValuesOf(b, parent);
  std::map<std::string, Value> others(right.begin(), right.end());
  for (const auto& [key, value] : left) {
    const auto found = others.find(key);
    if (found == others.end()) {
      return ConfigDifference{key, Shown(Written(value)), "absent"};
    }
    if (IsMessage(value.field)) {
      auto difference =
          Compare(MessageOf(value), MessageOf(found->second), key);
      if (difference.has_value()) return difference;
    } else if (Written(value) != Written(found->second)) {
      return ConfigDifference{key, Shown(Written(value)),
                              Shown(Written(found->second))};
    }
    others.erase(found);
  }
  for (const auto& [key, value] : right) {
    if (others.count(key) > 0) {
      return ConfigDifference{key, "absent", Shown(Written(value))};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ConfigDifference> FirstDifference(const v1::Config& a,
                                                const v1::Config& b) {
  return Compare(a, b, "");
}

}  // namespace ballast
