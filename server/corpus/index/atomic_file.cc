#include "server/corpus/index/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"

namespace ballast {
namespace {

// Syncs the folder, so that a crash of the machine cannot undo the rename.
absl::Status SyncFolder(const std::string& folder) {
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "open", folder);
  const int result = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  // Some file systems cannot sync a folder; the file itself is on the disk.
  if (result != 0 && error != EINVAL) return FileError(error, "sync", folder);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileAtomically(
    const std::string& path, std::initializer_list<absl::string_view> pieces) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FileError(error.value(), "make the folder", folder);

  BALLAST_ASSIGN_OR_RETURN(File file, File::CreateUnique(path));
  absl::Cleanup remove = [&] { unlink(file.path().c_str()); };
  for (const absl::string_view piece : pieces) {
    BALLAST_RETURN_IF_ERROR(file.Write(piece));
  }
  BALLAST_RETURN_IF_ERROR(file.Sync());
  if (rename(file.path().c_str(), path.c_str()) != 0) {
    return FileError(errno, "replace", path);
  }
  std::move(remove).Cancel();
  return SyncFolder(folder);
}

}  // namespace ballast
