#ifndef BALLAST_SERVER_HTTP_REQUEST_TARGET_H_
#define BALLAST_SERVER_HTTP_REQUEST_TARGET_H_

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// What a request asks for, as its first line writes it (RFC 3986).
struct RequestTarget {
  std::string path;  // decoded: "/a b"
  // Decoded; of a name given twice, the last value. A parameter without a name
  // is left out, and one that cannot be decoded is empty.
  std::map<std::string, std::string> query;
};

// Parses "/a%20b?x=1&y=2". In the query, a plus is a blank. nullopt: it begins
// with no slash, holds a percent sign without two hexadecimal digits in its
// path, or a zero byte. Pure.
std::optional<RequestTarget> ParseRequestTarget(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_REQUEST_TARGET_H_
