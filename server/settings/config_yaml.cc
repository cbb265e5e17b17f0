#include "server/settings/config_yaml.h"

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/message_fields.h"
#include "proto/options.pb.h"
#include "server/settings/config_keys.h"
#include "server/settings/yaml.h"

namespace ballast {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// Aliases let a short text expand to many values; no real file has this many.
constexpr int kMaxValues = 200000;

KeyLocation GetLocation(const YAML::Node& node) {
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

class Reader {
 public:
  explicit Reader(KeyReport* report) : report_(*report) {}

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
          ReadField(value, at, *field, message);
        });
  }

  void ReadField(const YAML::Node& node, const std::string& key,
                 const FieldDescriptor& field, Message* message) {
    if (field.is_map()) return ReadMap(node, key, field, message);
    if (field.is_repeated()) return ReadList(node, key, field, message);
    if (!IsMessage(field)) return ReadScalar(node, key, field, field, message);
    if (GetSetting(field).off() && node.IsScalar()) {
      if (node.Scalar() == "off") return;
      return Mistyped(key, node, "a map of keys and values, or off");
    }
    ReadSection(node, key, field,
                message->GetReflection()->MutableMessage(message, &field));
  }

 private:
  // Reads a section of the field `options`, or its shorthand, the value of one
  // of its keys (Setting.shorthand).
  void ReadSection(const YAML::Node& node, const std::string& key,
                   const FieldDescriptor& options, Message* section) {
    const std::string& name = GetSetting(options).shorthand();
    if (name.empty() || node.IsMap()) return ReadMessage(node, key, section);
    const FieldDescriptor& field =
        *section->GetDescriptor()->FindFieldByName(name);
    const std::string at = ChildKey(key, name);
    report_.AddKey(at, GetLocation(node));
    ReadField(node, at, field, section);
  }

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
      const KeyLocation location = GetLocation(entry.first);
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

  void ReadMap(const YAML::Node& node, const std::string& key,
               const FieldDescriptor& field, Message* message) {
    if (node.IsMap() && node.size() == 0) {
      return Fault(key, "found an empty map; wanted at least one entry");
    }
    const FieldDescriptor& type = *field.message_type()->map_value();
    ForEachEntry(node, key,
                 [&](const std::string& name, const std::string& at,
                     const YAML::Node& value) {
                   const Reflection& reflection = *message->GetReflection();
                   Message* entry = reflection.AddMessage(message, &field);
                   SetField(entry, *entry->GetDescriptor()->map_key(), name);
                   if (IsMessage(type)) {
                     ReadSection(
                         value, at, field,
                         entry->GetReflection()->MutableMessage(entry, &type));
                   } else {
                     ReadScalar(value, at, type, field, entry);
                   }
                 });
  }

  void ReadList(const YAML::Node& node, const std::string& key,
                const FieldDescriptor& field, Message* message) {
    if (GetSetting(field).one() && node.IsScalar()) {
      return ReadScalar(node, key, field, field, message);
    }
    if (!node.IsSequence()) return Mistyped(key, node, "a list");
    if (node.size() == 0) {
      return Fault(key, "found an empty list; wanted at least one entry");
    }
    const size_t most = GetSetting(field).max_items();
    if (most != 0 && node.size() > most) {
      return Fault(key, absl::StrCat("found ", node.size(),
                                     " entries; wanted at most ", most));
    }
    for (size_t i = 0; i < node.size(); ++i) {
      if (!CountValue()) return;
      const std::string item_key = ItemKey(key, static_cast<int>(i));
      const YAML::Node item = node[i];
      report_.AddKey(item_key, GetLocation(item));
      if (IsMessage(field)) {
        // A faulty item is added too, so that later indexes stay correct.
        ReadMessage(item, item_key,
                    message->GetReflection()->AddMessage(message, &field));
      } else {
        ReadScalar(item, item_key, field, field, message);
      }
    }
  }

  // `options` is the field with the options: for a map's value, the map.
  void ReadScalar(const YAML::Node& node, const std::string& key,
                  const FieldDescriptor& field, const FieldDescriptor& options,
                  Message* message) {
    std::optional<FieldValue> value;
    if (node.IsScalar()) {
      value = ParseValue(field, GetSetting(options), node.Scalar(),
                         IsPlainScalar(node));
    }
    if (!value.has_value()) {
      return Mistyped(key, node, DescribeValue(field, GetSetting(options)));
    }
    SetField(message, field, *value);
  }

  bool CountValue() {
    if (++values_ == kMaxValues) {
      Fault("", absl::StrCat("found more than ", kMaxValues,
                             " values; wanted a configuration"));
    }
    return values_ < kMaxValues;
  }

  KeyReport& report_;
  int values_ = 0;
};

void Fill(const KeyReport& report, const std::string& parent,
          Message* message) {
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message->GetDescriptor()->field(i);
    const std::string key = ChildKey(parent, field.name());
    const std::string& text = GetSetting(field).default_();
    if (!text.empty() && (!report.Has(key) || report.IsFaulty(key)) &&
        IsUsed(*message, field, parent, report).value_or(false)) {
      if (!IsMessage(field)) reflection.ClearField(message, &field);
      KeyReport ignored;
      Reader(&ignored).ReadField(YAML::Load(text), key, field, message);
    }
    if (!IsMessage(field) || IsAbsent(*message, field)) continue;
    if (!field.is_repeated()) {
      Fill(report, key, reflection.MutableMessage(message, &field));
      continue;
    }
    for (int k = 0; k < reflection.FieldSize(*message, &field); ++k) {
      Message* item = reflection.MutableRepeatedMessage(message, &field, k);
      if (!field.is_map()) {
        Fill(report, ItemKey(key, k), item);
        continue;
      }
      const google::protobuf::Descriptor& entry = *item->GetDescriptor();
      if (!IsMessage(*entry.map_value())) continue;
      const std::string name =
          ValueText(FieldElements(*item, *entry.map_key())[0].value);
      Fill(report, ChildKey(key, Shown(name)),
           item->GetReflection()->MutableMessage(item, entry.map_value()));
    }
  }
}

// A text in double quotes, which YAML reads as JSON does.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (absl::ascii_iscntrl(c)) {
      absl::StrAppendFormat(&quoted, "\\x%02x", c);
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// The fields that a file must name to become this message.
std::vector<const FieldDescriptor*> WrittenFields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const bool is_set =
        field->is_repeated()
            ? message.GetReflection()->FieldSize(message, field) != 0
            : message.GetReflection()->HasField(message, field);
    // A zero that is not the default.
    const bool is_zero = !is_set && !field->is_repeated() &&
                         !field->has_presence() &&
                         !GetSetting(*field).default_().empty() &&
                         field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM &&
                         IsUsed(message, *field);
    if (is_set || is_zero) fields.push_back(field);
  }
  return fields;
}

// A value on one line; sections in braces.
std::string InlineValue(const FieldDescriptor& field, const FieldValue& value) {
  if (const auto* message = std::get_if<const Message*>(&value)) {
    return absl::StrCat(
        "{",
        absl::StrJoin(WrittenFields(**message), ", ",
                      [&](std::string* out, const FieldDescriptor* f) {
                        absl::StrAppend(out, f->name(), ": ",
                                        YamlValue(**message, *f));
                      }),
        "}");
  }
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? WriteValue(field, value) : Quoted(*text);
}

}  // namespace

void ReadYaml(absl::string_view yaml, Message* message, KeyReport* report) {
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
    Reader(report).ReadMessage(document, "", message);
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

void FillDefaults(const KeyReport& report, Message* message) {
  Fill(report, "", message);
}

std::string YamlValue(const Message& message, const FieldDescriptor& field) {
  std::vector<std::string> items;
  for (const FieldElement& element : FieldElements(message, field)) {
    const std::string value = InlineValue(field, element.value);
    items.push_back(field.is_map()
                        ? absl::StrCat(Quoted(element.label), ": ", value)
                        : value);
  }
  if (!field.is_repeated()) return items[0];
  const std::string all = absl::StrJoin(items, ", ");
  return field.is_map() ? absl::StrCat("{", all, "}")
                        : absl::StrCat("[", all, "]");
}

std::string ToYaml(const Message& message, int indent) {
  std::string yaml;
  for (const FieldDescriptor* field : WrittenFields(message)) {
    absl::StrAppend(&yaml, std::string(indent, ' '), field->name(), ":");
    if (IsMessage(*field) && !field->is_repeated()) {
      const Message& section =
          message.GetReflection()->GetMessage(message, field);
      const std::string keys = ToYaml(section, indent + 2);
      absl::StrAppend(&yaml, keys.empty() ? " {}\n" : "\n", keys);
    } else {
      absl::StrAppend(&yaml, " ", YamlValue(message, *field), "\n");
    }
  }
  return yaml;
}

}  // namespace ballast
