#include "server/storage/object_version.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

bool SaysSomething(absl::string_view value) {
  value = absl::StripAsciiWhitespace(value);
  absl::ConsumePrefix(&value, "W/");
  absl::ConsumePrefix(&value, "\"");
  absl::ConsumeSuffix(&value, "\"");
  return !value.empty();
}

}  // namespace

std::string VersionOfFields(
    absl::Span<const std::pair<std::string, std::string>> fields) {
  for (const char* wanted : {"ETag", "Last-Modified", "updated"}) {
    for (const auto& [name, value] : fields) {
      if (absl::EqualsIgnoreCase(name, wanted) && SaysSomething(value)) {
        return absl::StrCat(name, "=", value);
      }
    }
  }
  return "";
}

}  // namespace ballast
