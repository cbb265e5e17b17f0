#ifndef BALLAST_SERVER_DATA_FORM_FORMS_H_
#define BALLAST_SERVER_DATA_FORM_FORMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// The forms of forms/ that make samples, in the order in which `init` tries
// them: that of their names.
std::vector<std::string> FormNames();

// `form` with the keys of the form that it names, where it gives none of its
// own, and so on; without a name. Pure. Errors: INVALID_ARGUMENT (there is no
// such form; it says which there are).
absl::StatusOr<v1::Source::Form> CompleteForm(const v1::Source::Form& form);

// What decides besides the files which samples the form makes: for indexes.
std::string FormKey(const v1::Source::Form& form);

// The form as a value of YAML, on one line; one of its keys, "" if it has none.
std::string FormYaml(const v1::Source::Form& form);
std::string FormValueYaml(const v1::Source::Form& form, const char* key);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORMS_H_
