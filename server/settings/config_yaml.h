#ifndef BALLAST_SERVER_SETTINGS_CONFIG_YAML_H_
#define BALLAST_SERVER_SETTINGS_CONFIG_YAML_H_

#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/string_view.h"
#include "server/settings/key_report.h"

namespace ballast {

// Configurations as YAML, for any message whose fields have the options of
// proto/options.proto (config_keys.h).

// Reads one YAML document into `message`: a map is a message whose keys are
// field names, a list is a repeated field, and a map field accepts any keys.
// Enum values are written as EnumWord says. Numbers and booleans are plain
// scalars; sizes and durations may also be quoted; texts are any scalars.
// Fields that the text does not name are left unchanged.
//
// Adds to `report` every key with its position and every fault: broken YAML
// (then the only fault), unknown, repeated, mistyped and empty keys, values
// outside their bounds. A faulty value leaves its field unset. Any text is read
// in bounded time and memory.
void ReadYaml(absl::string_view yaml, google::protobuf::Message* message,
              KeyReport* report);

// Sets every key that the file lacks, or that is faulty, to its default
// (Setting.default), in the sections that are there.
void FillDefaults(const KeyReport& report, google::protobuf::Message* message);

// The inverse of ReadYaml: one line for each field that is set or whose default
// is another value, indented by `indent` spaces, sections by two more. Lists
// are on one line.
std::string ToYaml(const google::protobuf::Message& message, int indent);

// One field's value as ToYaml writes it; the field is no section.
std::string YamlValue(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace ballast

#endif  // BALLAST_SERVER_SETTINGS_CONFIG_YAML_H_
