#ifndef BALLAST_SERVER_DATA_FORM_FORM_PATH_H_
#define BALLAST_SERVER_DATA_FORM_FORM_PATH_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A step of a path: a name, an entry of a list, or all of them.
struct FormStep {
  enum class Kind { kName, kEntry, kAll };
  Kind kind = Kind::kName;
  std::string name;
  size_t entry = 0;
};

struct FormPath {
  std::string text;
  std::vector<FormStep> steps;
};

// The first of these paths that a record has.
struct FormPaths {
  std::string text;  // as written
  std::vector<FormPath> paths;
};

// Reads `a.b[0]|c[]`. Errors: INVALID_ARGUMENT with what was found and wanted.
// Pure.
absl::StatusOr<FormPaths> ParseFormPaths(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_PATH_H_
