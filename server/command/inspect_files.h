#ifndef BALLAST_SERVER_COMMAND_INSPECT_FILES_H_
#define BALLAST_SERVER_COMMAND_INSPECT_FILES_H_

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// What `inspect image`, `video` and `audio` print: one JSON object a line for
// each file, in order, {file} and what `inspect` adds, and `error` if it fails.
// `noun` stands for the files in the error: "videos". Errors: INVALID_ARGUMENT
// after all files, with how many of them failed; UNAVAILABLE at once if `out`
// fails.
absl::Status InspectFiles(
    absl::Span<const std::string> files, absl::string_view noun,
    absl::FunctionRef<absl::Status(const std::string& file,
                                   nlohmann::ordered_json* object)>
        inspect,
    std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_FILES_H_
