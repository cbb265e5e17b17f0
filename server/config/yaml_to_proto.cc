#include "server/config/yaml_to_proto.h"

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/config/yaml_documents.h"
#include "server/config/yaml_scalar.h"

namespace ballast {
namespace {

using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// Aliases let a short text expand to many values; no real file has this many.
constexpr int kMaxValues = 200000;

KeyLocation LocationOf(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return {mark.line + 1, mark.column + 1};
}

// Quoted scalars carry the tag "!", plain ones "?".
bool IsPlainScalar(const YAML::Node& node) {
  return node.IsScalar() && node.Tag() != "!";
}

std::string Describe(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  if (node.IsNull()) return "nothing";
  if (IsPlainScalar(node)) return Shown(node.Scalar());
  if (node.Scalar().empty()) return "empty text";
  return absl::StrCat("the text \"", Shown(node.Scalar()), "\"");
}

std::vector<std::string> FieldNames(const Message& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    names.push_back(message.GetDescriptor()->field(i)->name());
  }
  return names;
}

// The spelling in YAML of each value except X_UNSPECIFIED, which has none.
absl::flat_hash_map<std::string, const EnumValueDescriptor*> EnumWords(
    const EnumDescriptor* type, std::vector<std::string>* in_order) {
  // The first value is X_UNSPECIFIED, or X_ and another single word.
  const std::string& first = type->value(0)->name();
  const std::string prefix = first.substr(0, first.rfind('_') + 1);
  absl::flat_hash_map<std::string, const EnumValueDescriptor*> words;
  for (int i = 0; i < type->value_count(); ++i) {
    const std::string word = absl::AsciiStrToLower(
        absl::StripPrefix(type->value(i)->name(), prefix));
    if (word == "unspecified") continue;
    words[word] = type->value(i);
    in_order->push_back(word);
  }
  return words;
}

class Reader {
 public:
  Reader(const FieldRules& rules, KeyReport* report)
      : rules_(rules), report_(*report) {}

  void ReadMessage(const YAML::Node& node, const std::string& key,
                   Message* message) {
    ForEachEntry(
        node, key,
        [&](const std::string& name, const std::string& at,
            const YAML::Node& value) {
          const FieldDescriptor* field =
              message->GetDescriptor()->FindFieldByName(name);
          if (field == nullptr) {
            Fault(at, absl::StrCat("unknown key; ",
                                   SuggestName(name, FieldNames(*message))));
            return;
          }
          ReadField(value, at, field, message);
        });
  }

 private:
  void Fault(const std::string& key, absl::string_view message) {
    report_.AddFault(key, message);
  }

  void Mistyped(const std::string& key, const YAML::Node& node,
                absl::string_view wanted) {
    Fault(key, absl::StrCat("found ", Describe(node), "; wanted ", wanted));
  }

  // Calls `read(name, key, value)` for each entry of a map, once for each name.
  template <typename Read>
  void ForEachEntry(const YAML::Node& node, const std::string& parent,
                    Read read) {
    if (!node.IsMap()) {
      return Mistyped(parent, node, "a map of keys and values");
    }
    absl::flat_hash_map<std::string, int> first_lines;
    for (const auto& entry : node) {
      if (!CountValue()) return;
      const KeyLocation location = LocationOf(entry.first);
      if (!entry.first.IsScalar()) {
        report_.AddFaultAt(location, parent,
                           absl::StrCat("found ", Describe(entry.first),
                                        " as a key; wanted a name"));
        continue;
      }
      const std::string& name = entry.first.Scalar();
      const std::string key = ChildKey(parent, Shown(name));
      const auto [first, is_new] = first_lines.emplace(name, location.line);
      if (!is_new) {
        report_.AddFaultAt(location, key,
                           absl::StrCat("found a second time (first on line ",
                                        first->second, "); wanted it once"));
        continue;
      }
      report_.AddKey(key, location);
      read(name, key, entry.second);
    }
  }

  void ReadField(const YAML::Node& node, const std::string& key,
                 const FieldDescriptor* field, Message* message) {
    if (field->is_map()) return ReadMap(node, key, field, message);
    if (field->is_repeated()) return ReadList(node, key, field, message);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (RuleOf(field).accepts_off && node.IsScalar()) {
        if (node.Scalar() == "off") return;
        return Mistyped(key, node, "a map of keys and values, or off");
      }
      const Reflection* reflection = message->GetReflection();
      return ReadMessage(node, key, reflection->MutableMessage(message, field));
    }
    ReadScalar(node, key, field, message);
  }

  void ReadMap(const YAML::Node& node, const std::string& key,
               const FieldDescriptor* field, Message* message) {
    if (node.IsMap() && node.size() == 0) {
      return Fault(key, "found an empty map; wanted at least one entry");
    }
    ForEachEntry(
        node, key,
        [&](const std::string& name, const std::string& at,
            const YAML::Node& value) {
          Message* entry = message->GetReflection()->AddMessage(message, field);
          entry->GetReflection()->SetString(
              entry, entry->GetDescriptor()->map_key(), name);
          ReadField(value, at, entry->GetDescriptor()->map_value(), entry);
        });
  }

  void ReadList(const YAML::Node& node, const std::string& key,
                const FieldDescriptor* field, Message* message) {
    if (!node.IsSequence()) return Mistyped(key, node, "a list");
    if (node.size() == 0) {
      return Fault(key, "found an empty list; wanted at least one entry");
    }
    for (size_t i = 0; i < node.size(); ++i) {
      if (!CountValue()) return;
      const std::string item_key = ItemKey(key, static_cast<int>(i));
      const YAML::Node item = node[i];
      report_.AddKey(item_key, LocationOf(item));
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        // A faulty item is added too, so that later indexes stay correct.
        ReadMessage(item, item_key,
                    message->GetReflection()->AddMessage(message, field));
      } else {
        ReadScalar(item, item_key, field, message);
      }
    }
  }

  void ReadScalar(const YAML::Node& node, const std::string& key,
                  const FieldDescriptor* field, Message* message) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return ReadString(node, key, field, message);
      case FieldDescriptor::CPPTYPE_ENUM:
        return ReadEnum(node, key, field, message);
      case FieldDescriptor::CPPTYPE_BOOL:
        return ReadBool(node, key, field, message);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return ReadDouble(node, key, field, message);
      case FieldDescriptor::CPPTYPE_INT32:
        return ReadInt32(node, key, field, message);
      case FieldDescriptor::CPPTYPE_UINT32:
        return ReadUnsigned(node, key, field,
                            std::numeric_limits<uint32_t>::max(), message);
      case FieldDescriptor::CPPTYPE_UINT64:
        return ReadUnsigned(node, key, field,
                            std::numeric_limits<uint64_t>::max(), message);
      default:
        // The schema uses no other types.
        return Mistyped(key, node, "a key of another type");
    }
  }

  void ReadString(const YAML::Node& node, const std::string& key,
                  const FieldDescriptor* field, Message* message) {
    if (!node.IsScalar() ||
        (node.Scalar().empty() && !RuleOf(field).accepts_empty)) {
      return Mistyped(key, node, "text");
    }
    Store(message, field, node.Scalar());
  }

  void ReadEnum(const YAML::Node& node, const std::string& key,
                const FieldDescriptor* field, Message* message) {
    std::vector<std::string> in_order;
    const auto words = EnumWords(field->enum_type(), &in_order);
    const auto found =
        node.IsScalar() ? words.find(node.Scalar()) : words.end();
    if (found == words.end()) {
      return Mistyped(key, node,
                      absl::StrCat("one of ", absl::StrJoin(in_order, ", ")));
    }
    message->GetReflection()->SetEnum(message, field, found->second);
  }

  void ReadBool(const YAML::Node& node, const std::string& key,
                const FieldDescriptor* field, Message* message) {
    const std::optional<bool> value =
        IsPlainScalar(node) ? ParseBool(node.Scalar()) : std::nullopt;
    if (!value) return Mistyped(key, node, "true or false");
    message->GetReflection()->SetBool(message, field, *value);
  }

  void ReadDouble(const YAML::Node& node, const std::string& key,
                  const FieldDescriptor* field, Message* message) {
    const FieldRule rule = RuleOf(field);
    const std::optional<double> value =
        IsPlainScalar(node) ? ParseReal(node.Scalar()) : std::nullopt;
    if (!value || !IsWithin(*value, rule)) {
      return Mistyped(key, node,
                      DescribeNumbers("a number", rule,
                                      std::numeric_limits<double>::lowest(),
                                      std::numeric_limits<double>::max()));
    }
    Store(message, field, *value);
  }

  void ReadInt32(const YAML::Node& node, const std::string& key,
                 const FieldDescriptor* field, Message* message) {
    constexpr double kMin = std::numeric_limits<int32_t>::min();
    constexpr double kMax = std::numeric_limits<int32_t>::max();
    const FieldRule rule = RuleOf(field);
    const std::optional<int64_t> value =
        IsPlainScalar(node) ? ParseSigned(node.Scalar()) : std::nullopt;
    if (!value || *value < kMin || *value > kMax ||
        !IsWithin(static_cast<double>(*value), rule)) {
      return Mistyped(key, node,
                      DescribeNumbers("a whole number", rule, kMin, kMax));
    }
    message->GetReflection()->SetInt32(message, field,
                                       static_cast<int32_t>(*value));
  }

  void ReadUnsigned(const YAML::Node& node, const std::string& key,
                    const FieldDescriptor* field, uint64_t type_max,
                    Message* message) {
    const FieldRule rule = RuleOf(field);
    std::optional<uint64_t> value;
    // JSON has no other way to write 8GiB than in quotes.
    if (IsPlainScalar(node) || (rule.byte_size && node.IsScalar())) {
      const std::string& text = node.Scalar();
      value = rule.byte_size ? ParseByteSize(text) : ParseUnsigned(text);
      if (rule.accepts_auto && text == "auto") value = 0;
    }
    const bool is_auto = rule.accepts_auto && value == 0u;
    if (!value || *value > type_max ||
        (!is_auto && !IsWithin(static_cast<double>(*value), rule))) {
      return Mistyped(key, node,
                      DescribeNumbers("a whole number", rule, 0,
                                      static_cast<double>(type_max)));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      message->GetReflection()->SetUInt32(message, field,
                                          static_cast<uint32_t>(*value));
    } else {
      message->GetReflection()->SetUInt64(message, field, *value);
    }
  }

  // Sets a field, or appends to a repeated one.
  static void Store(Message* message, const FieldDescriptor* field,
                    const std::string& value) {
    const Reflection* reflection = message->GetReflection();
    if (field->is_repeated()) {
      reflection->AddString(message, field, value);
    } else {
      reflection->SetString(message, field, value);
    }
  }
  static void Store(Message* message, const FieldDescriptor* field,
                    double value) {
    const Reflection* reflection = message->GetReflection();
    if (field->is_repeated()) {
      reflection->AddDouble(message, field, value);
    } else {
      reflection->SetDouble(message, field, value);
    }
  }

  FieldRule RuleOf(const FieldDescriptor* field) const {
    const auto found = rules_.find(field->full_name());
    return found == rules_.end() ? FieldRule() : found->second;
  }

  bool CountValue() {
    if (++values_ == kMaxValues) {
      Fault("", absl::StrCat("found more than ", kMaxValues,
                             " values; wanted a configuration"));
    }
    return values_ < kMaxValues;
  }

  const FieldRules& rules_;
  KeyReport& report_;
  int values_ = 0;
};

}  // namespace

void ReadYaml(absl::string_view yaml, const FieldRules& rules, Message* message,
              KeyReport* report) {
  try {
    const std::string text(yaml);
    if (const auto second = FindSecondDocument(text)) {
      report->AddFaultAt(*second, "",
                         "found a second document, or text outside of any; "
                         "wanted one document");
      return;
    }
    const YAML::Node document = YAML::Load(text);
    // An empty file is a configuration without keys.
    if (document.IsNull()) return;
    Reader(rules, report).ReadMessage(document, "", message);
  } catch (const YAML::Exception& e) {
    const KeyLocation location =
        e.mark.is_null() ? KeyLocation()
                         : KeyLocation{e.mark.line + 1, e.mark.column + 1};
    report->AddFaultAt(
        location, "",
        absl::StrCat("found broken YAML: ", e.msg, "; wanted YAML or JSON"));
  } catch (const std::exception& e) {
    report->AddFaultAt(KeyLocation(), "",
                       absl::StrCat("found text that the YAML reader refuses: ",
                                    e.what(), "; wanted YAML or JSON"));
  }
}

}  // namespace ballast
