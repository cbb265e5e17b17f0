#ifndef BALLAST_SERVER_SETTINGS_CONFIG_KEYS_H_
#define BALLAST_SERVER_SETTINGS_CONFIG_KEYS_H_

#include <map>
#include <optional>
#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/string_view.h"
#include "common/message_fields.h"
#include "proto/options.pb.h"
#include "server/settings/key_report.h"

namespace ballast {

// What the options of proto/options.proto say of the keys of a configuration,
// applied to any message that has them: a key that is added to a proto needs no
// code here. config_yaml.h reads and prints configurations by the same options.
// Keys are written as in key_report.h. All functions are pure.

const v1::Setting& GetSetting(const google::protobuf::FieldDescriptor& field);

// The values that a file may give the field, or each element of it: "a whole
// number from 1 to 4096", "one of error, skip", "true or false", "text".
// `setting` has the options of the field, or of the map for a map's value.
std::string DescribeValue(const google::protobuf::FieldDescriptor& field,
                          const v1::Setting& setting);

// The value of a file's text; nullopt unless the field takes it.
// `is_plain`: the text is not in quotes, within which only texts, sizes and
// durations are read. `setting`: as for DescribeValue.
std::optional<FieldValue> ParseValue(
    const google::protobuf::FieldDescriptor& field, const v1::Setting& setting,
    const std::string& text, bool is_plain);

// The inverse, a size as "8GiB". Texts are not quoted.
std::string WriteValue(const google::protobuf::FieldDescriptor& field,
                       const FieldValue& value);

// Whether the field of `message` has a meaning given its neighbours
// (Setting.only).
bool IsUsed(const google::protobuf::Message& message,
            const google::protobuf::FieldDescriptor& field);

// The same, if the neighbour is neither faulty nor missing. `parent` is the key
// of `message`.
std::optional<bool> IsUsed(const google::protobuf::Message& message,
                           const google::protobuf::FieldDescriptor& field,
                           absl::string_view parent, const KeyReport& report);

// Adds the faults of keys that are required and missing, and of keys that have
// no meaning given their neighbours. Fills in defaults.
void CheckKeys(const google::protobuf::Message& message, KeyReport* report);

// Resolves every path of the message against `directory`.
void ResolvePaths(absl::string_view directory,
                  google::protobuf::Message* message);

// A key whose values differ between two messages.
struct KeyDifference {
  std::string key;  // "balance.window", "topology.modules.vision.dp"
  std::string a;    // as written: "2", "exchange"; or "absent", "a section"
  std::string b;
  v1::Setting::Change change = v1::Setting::JOB;  // what adopting `b` takes
};

// The first key, in the order of the proto, whose values differ between two
// messages of one type; nullopt if they are equal.
std::optional<KeyDifference> FirstDifference(
    const google::protobuf::Message& a, const google::protobuf::Message& b);

// Copies the keys that a running server adopts (Setting.RELOAD), within
// sections that both messages have.
void AdoptReloadable(const google::protobuf::Message& wanted,
                     google::protobuf::Message* running);

// A number as fingerprints have it: the fewest digits that read back as the
// same double, 90 as "9e+01".
std::string FingerprintNumber(double value);

// Adds the entries of a fingerprint, in the form of the releases so far: a list
// of sections is KEY.0000, and a list of values is joined by commas.
void AddFingerprint(const google::protobuf::Message& message,
                    std::map<std::string, std::string>* entries);

}  // namespace ballast

#endif  // BALLAST_SERVER_SETTINGS_CONFIG_KEYS_H_
