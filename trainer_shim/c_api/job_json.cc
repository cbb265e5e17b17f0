#include "trainer_shim/c_api/job_json.h"

#include <string>
#include <utility>
#include <variant>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

#include "common/message_fields.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message);

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
