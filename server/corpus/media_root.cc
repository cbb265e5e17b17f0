#include "server/corpus/media_root.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"

namespace ballast {

absl::StatusOr<MediaRoot> MediaRoot::Create(const std::string& folder) {
  std::error_code error;
  std::string real =
      std::filesystem::canonical(folder.empty() ? "." : folder, error).string();
  if (error) return FileError(error.value(), "find the media_root", folder);
  if (!absl::EndsWith(real, "/")) real += '/';
  return MediaRoot(std::move(real));
}

absl::StatusOr<File> MediaRoot::Open(absl::string_view path) const {
  BALLAST_RETURN_IF_ERROR(CheckDataPath(path));
  BALLAST_ASSIGN_OR_RETURN(File file, File::Open(absl::StrCat(folder_, path)));
  BALLAST_ASSIGN_OR_RETURN(const std::string real, file.RealPath());
  if (!absl::StartsWith(real, folder_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("path \"", Printable(path), "\" leads outside ", folder_));
  }
  return file;
}

}  // namespace ballast
