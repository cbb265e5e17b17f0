#ifndef BALLAST_SERVER_DATA_FORM_FORM_PATH_H_
#define BALLAST_SERVER_DATA_FORM_FORM_PATH_H_

#include <cstddef>
#include <cstdint>
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
  // Of the names that a record must have one of: KeyBit.
  uint64_t keys = 0;
};

// One of 64 bits for a name, by which most names that a record does not have
// are known not to be there. Pure.
inline uint64_t KeyBit(absl::string_view name) {
  const size_t sum = name.empty() ? 0
                                  : name.size() * 7 +
                                        static_cast<uint8_t>(name.front()) * 3 +
                                        static_cast<uint8_t>(name.back());
  return uint64_t{1} << (sum % 64);
}

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
