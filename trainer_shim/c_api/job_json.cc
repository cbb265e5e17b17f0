#include "trainer_shim/c_api/job_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json ToJson(const Message& message);

// MODULE_VISION of enum Module is "vision".
std::string NameOf(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  const absl::string_view name = absl::StripPrefix(
      absl::StripPrefix(absl::string_view(value.name()), prefix), "_");
  return absl::AsciiStrToLower(name);
}

Json Element(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection& of = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return of.GetRepeatedInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return of.GetRepeatedInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return of.GetRepeatedUInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return of.GetRepeatedUInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return of.GetRepeatedDouble(message, field, i);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return of.GetRepeatedFloat(message, field, i);
    case FieldDescriptor::CPPTYPE_BOOL:
      return of.GetRepeatedBool(message, field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return NameOf(*of.GetRepeatedEnum(message, field, i));
    case FieldDescriptor::CPPTYPE_STRING:
      return of.GetRepeatedString(message, field, i);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(of.GetRepeatedMessage(message, field, i));
  }
  return nullptr;
}

Json Single(const Message& message, const FieldDescriptor* field) {
  const Reflection& of = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return of.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return of.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return of.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return of.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return of.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return of.GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return of.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return NameOf(*of.GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return of.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(of.GetMessage(message, field));
  }
  return nullptr;
}

Json ToJson(const Message& message) {
  Json json = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int f = 0; f < type.field_count(); ++f) {
    const FieldDescriptor* field = type.field(f);
    if (!field->is_repeated()) {
      json[field->name()] = Single(message, field);
      continue;
    }
    Json list = Json::array();
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) list.push_back(Element(message, field, i));
    json[field->name()] = std::move(list);
  }
  return json;
}

}  // namespace

std::string JobToJson(const v1::Job& job, const v1::Fingerprint& fingerprint) {
  Json json;
  json["fingerprint"] = fingerprint.hash();
  json["data_fingerprint"] = fingerprint.data_hash();
  json.update(ToJson(job));
  // Text from a server that is not UTF-8 must not end the process.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ballast
