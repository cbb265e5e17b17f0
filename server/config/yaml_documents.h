#ifndef BALLAST_SERVER_CONFIG_YAML_DOCUMENTS_H_
#define BALLAST_SERVER_CONFIG_YAML_DOCUMENTS_H_

#include <optional>
#include <string>

#include "server/config/key_report.h"

namespace ballast {

// The position at which a YAML text has a second document, or text outside of
// any document, broken or not. Returns nullopt if there is at most one
// document, or if the first is broken, which reading it will report.
std::optional<KeyLocation> FindSecondDocument(const std::string& text);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_YAML_DOCUMENTS_H_
