#include "tests/fakes/shared_dir.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace ballast {

std::optional<std::string> SharedDirWith(absl::string_view file) {
  const char* folder = std::getenv("BALLAST_SHARED_DIR");
  std::error_code ignored;
  if (folder == nullptr || *folder == '\0' ||
      !std::filesystem::exists(absl::StrCat(folder, "/", file), ignored)) {
    return std::nullopt;
  }
  return folder;
}

std::string NotShared(absl::string_view file) {
  return absl::StrCat("BALLAST_SHARED_DIR names no folder with ", file);
}

}  // namespace ballast
