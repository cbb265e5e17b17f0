#ifndef BALLAST_COMMON_MESSAGE_FIELDS_H_
#define BALLAST_COMMON_MESSAGE_FIELDS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ballast {

// Fields of any message as values. All code that reads, compares, prints or
// hashes a message by its descriptor walks it with these functions. All are
// pure; values point into the message.

// int32 is int64_t, uint32 is uint64_t, float is double, bytes are std::string.
using FieldValue = std::variant<bool, int64_t, uint64_t, double, std::string,
                                const google::protobuf::EnumValueDescriptor*,
                                const google::protobuf::Message*>;

// One value of a field: the only one of a single field, whose label is empty;
// an item of a list, labelled "0", "1", ...; an entry of a map, labelled with
// its key.
struct FieldElement {
  std::string label;
  FieldValue value;
};

// The values of a field, set or not: one value of a single field, the items of
// a list in order, the entries of a map by key.
std::vector<FieldElement> FieldElements(
    const google::protobuf::Message& message,
    const google::protobuf::FieldDescriptor& field);

// Sets a single field, or appends to a list. `value` has the field's type, and
// is not a message.
void SetField(google::protobuf::Message* message,
              const google::protobuf::FieldDescriptor& field,
              const FieldValue& value);

// Whether the field has presence and is not set: a section, or an `optional`
// field.
bool IsAbsent(const google::protobuf::Message& message,
              const google::protobuf::FieldDescriptor& field);

bool IsMessage(const google::protobuf::FieldDescriptor& field);

// An enum's value as files and messages name it: "exchange" of
// DELIVERY_EXCHANGE. The prefix comes from the enum's first value, which is
// X_UNSPECIFIED, or X_ and another single word.
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);

// The words of all values but X_UNSPECIFIED, aliases included, in order.
std::vector<std::string> EnumWords(
    const google::protobuf::EnumDescriptor& type);

// The value of that word; nullptr if there is none, and for "unspecified".
const google::protobuf::EnumValueDescriptor* FindEnumWord(
    const google::protobuf::EnumDescriptor& type, const std::string& word);

// A value that is not a message, as text: true, 12, 0.5, a text unchanged, the
// word of an enum.
std::string ValueText(const FieldValue& value);

// A message as JSON: an object with every field under its name; one that is not
// set has its type's zero. Numbers of 64 bits are numbers (protobuf's own JSON
// writes texts), an enum is its word ("exchange"), a map is a list of its
// values. Pure. Texts keep their bytes, which need not be UTF-8: dump the
// result with error_handler_t::replace.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace ballast

#endif  // BALLAST_COMMON_MESSAGE_FIELDS_H_
