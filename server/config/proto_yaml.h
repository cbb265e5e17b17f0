#ifndef BALLAST_SERVER_CONFIG_PROTO_YAML_H_
#define BALLAST_SERVER_CONFIG_PROTO_YAML_H_

#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace ballast {

// The inverse of ReadYaml (yaml_to_proto.h) for messages whose lists hold
// doubles or messages of numbers: one line for each field that is set, indented
// by `indent` spaces, sections by two more.
std::string ProtoYaml(const google::protobuf::Message& message, int indent);

// One field's value as ProtoYaml writes it; the field is no section.
std::string YamlValue(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_PROTO_YAML_H_
