#include "server/command/inspect_files.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace ballast {

absl::Status InspectFiles(
    absl::Span<const std::string> files, absl::string_view noun,
    absl::FunctionRef<absl::Status(const std::string& file,
                                   nlohmann::ordered_json* object)>
        inspect,
    std::ostream& out) {
  size_t failed = 0;
  for (const std::string& file : files) {
    nlohmann::ordered_json object = {{"file", file}};
    const absl::Status status = inspect(file, &object);
    if (!status.ok()) {
      ++failed;
      object["error"] = std::string(status.message());
    }
    // A file's name may be any bytes; JSON allows only UTF-8.
    out << object.dump(-1, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace)
        << std::endl;
    if (!out) return absl::UnavailableError("cannot write to standard output");
  }
  if (failed == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(failed, " of ", files.size(), " ", noun,
                   " failed; see `error` in their lines"));
}

}  // namespace ballast
