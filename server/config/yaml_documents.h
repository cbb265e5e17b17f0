#ifndef BALLAST_SERVER_CONFIG_YAML_DOCUMENTS_H_
#define BALLAST_SERVER_CONFIG_YAML_DOCUMENTS_H_

#include <optional>
#include <string>

#include "server/config/key_report.h"

namespace ballast {

// Where a second document starts in a YAML text, or text that belongs to none,
// broken or not; nothing where there is at most one document, and where the
// first is broken already: reading it says why.
std::optional<KeyLocation> FindSecondDocument(const std::string& text);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_YAML_DOCUMENTS_H_
