#include "server/data/form/form_path.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

using Step = FormStep;

absl::StatusOr<FormPath> ParsePath(absl::string_view text) {
  FormPath path;
  path.text = std::string(text);
  for (absl::string_view name : absl::StrSplit(text, '.')) {
    const size_t bracket = std::min(name.find('['), name.size());
    absl::string_view entries = name.substr(bracket);
    name = name.substr(0, bracket);
    if (name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found \"", text, "\"; wanted a path: NAME, NAME.NAME, NAME[0]"));
    }
    path.steps.push_back({Step::Kind::kName, std::string(name)});
    while (!entries.empty()) {
      const size_t end = entries.find(']');
      Step step = {Step::Kind::kAll, ""};
      const absl::string_view number =
          end == entries.npos ? "x" : entries.substr(1, end - 1);
      if (!number.empty()) {
        step.kind = Step::Kind::kEntry;
        if (entries[0] != '[' || !absl::SimpleAtoi(number, &step.entry)) {
          return absl::InvalidArgumentError(
              absl::StrCat("found \"", text,
                           "\"; wanted [] or [NUMBER] after the name of a "
                           "list"));
        }
      }
      path.steps.push_back(std::move(step));
      entries.remove_prefix(end + 1);
    }
  }
  path.keys = KeyBit(path.text) | KeyBit(path.steps[0].name);
  return path;
}

absl::StatusOr<FormPaths> ParsePaths(absl::string_view text) {
  FormPaths key;
  key.text = std::string(text);
  for (const absl::string_view one : absl::StrSplit(text, '|')) {
    BALLAST_ASSIGN_OR_RETURN(FormPath path,
                             ParsePath(absl::StripAsciiWhitespace(one)));
    key.paths.push_back(std::move(path));
  }
  return key;
}

}  // namespace

absl::Status ParseFormPaths(const char* name, absl::string_view text,
                            std::vector<FormPaths>* keys) {
  absl::StatusOr<FormPaths> key = ParsePaths(text);
  if (!key.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("form.", name, ": ", key.status().message()));
  }
  keys->push_back(*std::move(key));
  return absl::OkStatus();
}

}  // namespace ballast
