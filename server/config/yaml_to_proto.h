#ifndef BALLAST_SERVER_CONFIG_YAML_TO_PROTO_H_
#define BALLAST_SERVER_CONFIG_YAML_TO_PROTO_H_

#include <google/protobuf/message.h>

#include "absl/strings/string_view.h"
#include "server/config/field_rules.h"
#include "server/config/key_report.h"

namespace ballast {

// Reads one YAML document into `message` by reflection: a map is a message
// whose keys are field names, a list is a repeated field, and a map field
// accepts any keys. Enum values are written in lower case without their prefix
// (the one of X_UNSPECIFIED). Numbers and booleans are plain scalars; sizes in
// bytes may also be quoted; strings are any scalars. Lists contain messages,
// strings or doubles. `rules` constrain values further. Fields that the text
// does not name are left unchanged.
//
// Adds to `report` every key with its position and every fault: broken YAML
// (then the only fault), unknown, repeated, mistyped and empty keys, values
// outside their rules. A faulty value leaves its field unset. Any text is read
// in bounded time and memory.
void ReadYaml(absl::string_view yaml, const FieldRules& rules,
              google::protobuf::Message* message, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_YAML_TO_PROTO_H_
