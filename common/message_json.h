#ifndef BALLAST_COMMON_MESSAGE_JSON_H_
#define BALLAST_COMMON_MESSAGE_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace ballast {

// A message as JSON: an object with every field under its name; one that is not
// set has its type's zero. Numbers of 64 bits are numbers (protobuf's own JSON
// writes texts), an enum is its word ("exchange"), a map is a list of its
// values. Pure. Texts keep their bytes, which need not be UTF-8: dump the
// result with error_handler_t::replace.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace ballast

#endif  // BALLAST_COMMON_MESSAGE_JSON_H_
