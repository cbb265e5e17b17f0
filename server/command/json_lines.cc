#include "server/command/json_lines.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

absl::Status TransformJsonLines(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<nlohmann::ordered_json>(
        const nlohmann::json& object)>& transform) {
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::string place = absl::StrCat("standard input line ", number);
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": not a JSON object"));
    }
    const auto result = transform(object);
    if (!result.ok()) return Annotate(result.status(), place);
    out << result->dump() << "\n";
  }
  out.flush();
  if (!out) return absl::UnavailableError("cannot write to standard output");
  return absl::OkStatus();
}

}  // namespace ballast
