#include "server/config/proto_yaml.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ballast {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

// A text in double quotes, which YAML reads as JSON does.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Writes a field's value on one line; lists and their items in brackets.
std::string ValueAt(const Message& message, const FieldDescriptor* field,
                    int index) {
  const auto& reflection = *message.GetReflection();
  if (field->is_repeated() && index < 0) {
    std::vector<std::string> items;
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      items.push_back(ValueAt(message, field, i));
    }
    return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const auto& child = reflection.GetRepeatedMessage(message, field, index);
      std::vector<const FieldDescriptor*> fields;
      child.GetReflection()->ListFields(child, &fields);
      return absl::StrCat(
          "{",
          absl::StrJoin(fields, ", ",
                        [&](std::string* out, const FieldDescriptor* f) {
                          absl::StrAppend(out, f->name(), ": ",
                                          ValueAt(child, f, -1));
                        }),
          "}");
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      // RULE_TILE_GRID becomes tile_grid: RULE_UNSPECIFIED has the prefix.
      constexpr absl::string_view kUnset = "UNSPECIFIED";
      const size_t prefix =
          field->enum_type()->value(0)->name().size() - kUnset.size();
      return absl::AsciiStrToLower(
          reflection.GetEnum(message, field)->name().substr(prefix));
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return Quoted(reflection.GetString(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(
          field->is_repeated()
              ? reflection.GetRepeatedDouble(message, field, index)
              : reflection.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(reflection.GetUInt64(message, field));
    default:
      return absl::StrCat(reflection.GetUInt32(message, field));
  }
}

void AppendYaml(const Message& message, int indent, std::string* out) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    absl::StrAppend(out, std::string(indent, ' '), field->name(), ":");
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
        !field->is_repeated()) {
      absl::StrAppend(out, "\n");
      AppendYaml(message.GetReflection()->GetMessage(message, field),
                 indent + 2, out);
    } else {
      absl::StrAppend(out, " ", ValueAt(message, field, -1), "\n");
    }
  }
}

}  // namespace

std::string YamlValue(const Message& message, const FieldDescriptor& field) {
  return ValueAt(message, &field, -1);
}

std::string ProtoYaml(const Message& message, int indent) {
  std::string yaml;
  AppendYaml(message, indent, &yaml);
  return yaml;
}

}  // namespace ballast
