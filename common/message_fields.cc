#include "common/message_fields.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

FieldValue SingleValue(const Message& message, const FieldDescriptor* field) {
  const Reflection& r = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return int64_t{r.GetInt32(message, field)};
    case FieldDescriptor::CPPTYPE_INT64:
      return int64_t{r.GetInt64(message, field)};
    case FieldDescriptor::CPPTYPE_UINT32:
      return uint64_t{r.GetUInt32(message, field)};
    case FieldDescriptor::CPPTYPE_UINT64:
      return uint64_t{r.GetUInt64(message, field)};
    case FieldDescriptor::CPPTYPE_FLOAT:
      return double{r.GetFloat(message, field)};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.GetEnum(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return r.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return &r.GetMessage(message, field);
}

FieldValue ItemValue(const Message& message, const FieldDescriptor* field,
                     int i) {
  const Reflection& r = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetRepeatedBool(message, field, i);
    case FieldDescriptor::CPPTYPE_INT32:
      return int64_t{r.GetRepeatedInt32(message, field, i)};
    case FieldDescriptor::CPPTYPE_INT64:
      return int64_t{r.GetRepeatedInt64(message, field, i)};
    case FieldDescriptor::CPPTYPE_UINT32:
      return uint64_t{r.GetRepeatedUInt32(message, field, i)};
    case FieldDescriptor::CPPTYPE_UINT64:
      return uint64_t{r.GetRepeatedUInt64(message, field, i)};
    case FieldDescriptor::CPPTYPE_FLOAT:
      return double{r.GetRepeatedFloat(message, field, i)};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.GetRepeatedDouble(message, field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.GetRepeatedEnum(message, field, i);
    case FieldDescriptor::CPPTYPE_STRING:
      return r.GetRepeatedString(message, field, i);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return &r.GetRepeatedMessage(message, field, i);
}

// "DELIVERY_" of DELIVERY_EXCHANGE.
std::string EnumPrefix(const EnumDescriptor& type) {
  const std::string& first = type.value(0)->name();
  return first.substr(0, first.rfind('_') + 1);
}

// Reads back as the same double.
std::string DoubleText(double value) {
  const std::string text = absl::StrFormat("%.15g", value);
  return std::strtod(text.c_str(), nullptr) == value
             ? text
             : absl::StrFormat("%.17g", value);
}

}  // namespace

std::vector<FieldElement> FieldElements(const Message& message,
                                        const FieldDescriptor& field) {
  if (!field.is_repeated()) return {{"", SingleValue(message, &field)}};
  std::vector<FieldElement> elements;
  const int size = message.GetReflection()->FieldSize(message, &field);
  elements.reserve(size);
  for (int i = 0; i < size; ++i) {
    FieldValue value = ItemValue(message, &field, i);
    if (!field.is_map()) {
      elements.push_back({absl::StrCat(i), std::move(value)});
      continue;
    }
    const Message& entry = *std::get<const Message*>(value);
    const google::protobuf::Descriptor& type = *entry.GetDescriptor();
    elements.push_back({ValueText(SingleValue(entry, type.map_key())),
                        SingleValue(entry, type.map_value())});
  }
  if (field.is_map()) {
    std::sort(elements.begin(), elements.end(),
              [](const FieldElement& a, const FieldElement& b) {
                return a.label < b.label;
              });
  }
  return elements;
}

void SetField(Message* message, const FieldDescriptor& field,
              const FieldValue& value) {
  const Reflection& r = *message->GetReflection();
  const bool append = field.is_repeated();
  const auto set = [&](auto add, auto set, auto typed) {
    append ? (r.*add)(message, &field, typed)
           : (r.*set)(message, &field, typed);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Reflection::AddBool, &Reflection::SetBool,
                 std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Reflection::AddInt32, &Reflection::SetInt32,
                 static_cast<int32_t>(std::get<int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&Reflection::AddInt64, &Reflection::SetInt64,
                 std::get<int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::AddUInt32, &Reflection::SetUInt32,
                 static_cast<uint32_t>(std::get<uint64_t>(value)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::AddUInt64, &Reflection::SetUInt64,
                 std::get<uint64_t>(value));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::AddFloat, &Reflection::SetFloat,
                 static_cast<float>(std::get<double>(value)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&Reflection::AddDouble, &Reflection::SetDouble,
                 std::get<double>(value));
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&Reflection::AddEnum, &Reflection::SetEnum,
                 std::get<const EnumValueDescriptor*>(value));
    case FieldDescriptor::CPPTYPE_STRING:
      return append
                 ? r.AddString(message, &field, std::get<std::string>(value))
                 : r.SetString(message, &field, std::get<std::string>(value));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
}

bool IsAbsent(const Message& message, const FieldDescriptor& field) {
  return field.has_presence() &&
         !message.GetReflection()->HasField(message, &field);
}

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

std::string EnumWord(const EnumValueDescriptor& value) {
  return absl::AsciiStrToLower(
      absl::StripPrefix(value.name(), EnumPrefix(*value.type())));
}

std::vector<std::string> EnumWords(const EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    std::string word = EnumWord(*type.value(i));
    if (word != "unspecified") words.push_back(std::move(word));
  }
  return words;
}

const EnumValueDescriptor* FindEnumWord(const EnumDescriptor& type,
                                        const std::string& word) {
  if (word == "unspecified") return nullptr;
  for (int i = 0; i < type.value_count(); ++i) {
    if (EnumWord(*type.value(i)) == word) return type.value(i);
  }
  return nullptr;
}

std::string ValueText(const FieldValue& value) {
  struct Writer {
    std::string operator()(bool value) const {
      return value ? "true" : "false";
    }
    std::string operator()(int64_t value) const { return absl::StrCat(value); }
    std::string operator()(uint64_t value) const { return absl::StrCat(value); }
    std::string operator()(double value) const { return DoubleText(value); }
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const EnumValueDescriptor* value) const {
      return EnumWord(*value);
    }
    std::string operator()(const Message*) const { return "a section"; }
  };
  return std::visit(Writer(), value);
}

namespace {

using Json = nlohmann::ordered_json;

struct JsonWriter {
  Json operator()(const google::protobuf::EnumValueDescriptor* value) const {
    return EnumWord(*value);
  }
  Json operator()(const google::protobuf::Message* value) const {
    return ToJson(*value);
  }
  template <typename T>
  Json operator()(const T& value) const {
    return value;
  }
};

}  // namespace

Json ToJson(const google::protobuf::Message& message) {
  Json json = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto& field = *message.GetDescriptor()->field(i);
    Json list = Json::array();
    for (const FieldElement& element : FieldElements(message, field)) {
      list.push_back(std::visit(JsonWriter(), element.value));
    }
    json[field.name()] =
        field.is_repeated() ? std::move(list) : std::move(list[0]);
  }
  return json;
}

}  // namespace ballast
