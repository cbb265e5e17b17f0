#ifndef BALLAST_SERVER_DATA_FORM_FORM_PATH_H_
#define BALLAST_SERVER_DATA_FORM_FORM_PATH_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

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

// Adds the paths of a text of the key `name`. Errors: INVALID_ARGUMENT.
absl::Status ParseFormPaths(const char* name, absl::string_view text,
                            std::vector<FormPaths>* keys);

// Reads the paths of the key `name` of a form, each as `a.b[0]|c[]`; empty
// texts are none. Errors: INVALID_ARGUMENT with the key, what was found and
// what was wanted.
template <typename List>
absl::Status ParseFormKeys(const char* name, const List& texts,
                           std::vector<FormPaths>* keys) {
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    BALLAST_RETURN_IF_ERROR(ParseFormPaths(name, text, keys));
  }
  return absl::OkStatus();
}

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_PATH_H_
