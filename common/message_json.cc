#include "common/message_json.h"

#include <utility>
#include <variant>

#include "common/message_fields.h"

namespace ballast {
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
