#ifndef BALLAST_SERVER_DATA_JSONL_PYTHON_JSON_H_
#define BALLAST_SERVER_DATA_JSONL_PYTHON_JSON_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// JSON as Python writes it, as JSON: NaN and Infinity become null, and integers
// of more than 18 digits numbers with a fraction. Texts stay as they are. A
// byte order mark at the beginning is left out. Other bytes stay. Pure.
std::string FromPythonJson(absl::string_view json);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_PYTHON_JSON_H_
