#include "server/storage/local_store.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"

namespace ballast {
namespace {

// Errors that are not NOT_FOUND are UNAVAILABLE, as of every store.
absl::Status AsStore(const absl::Status& status) {
  if (status.ok() || absl::IsNotFound(status)) return status;
  return absl::UnavailableError(status.message());
}

class LocalStore final : public ObjectStore {
 public:
  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool recursive) override {
    std::vector<StoreEntry> entries;
    std::error_code error;
    std::filesystem::recursive_directory_iterator entry(folder, error), end;
    if (error == std::errc::no_such_file_or_directory) return entries;
    while (!error && entry != end) {
      if (!recursive) entry.disable_recursion_pending();
      if (entry->is_regular_file(error)) {
        const uint64_t size = entry->file_size(error);
        entries.push_back({.path = entry->path(), .size = error ? 0 : size});
      } else if (!recursive && entry->is_directory(error)) {
        entries.push_back({.path = entry->path(), .is_folder = true});
      }
      entry.increment(error);
    }
    if (error) return AsStore(FileError(error.value(), "list", folder));
    return entries;
  }

  absl::StatusOr<FileStamp> Stat(const std::string& path) override {
    const absl::StatusOr<FileStamp> stamp = StampFile(path);
    if (!stamp.ok()) return AsStore(stamp.status());
    return stamp;
  }

  absl::Status Read(const std::string& path, uint64_t /*object_size*/,
                    uint64_t offset, uint64_t size, char* out) override {
    const absl::StatusOr<File> file = File::Open(path);
    if (!file.ok()) return AsStore(file.status());
    return AsStore(file->ReadAt(offset, size, out));
  }
};

}  // namespace

std::unique_ptr<ObjectStore> MakeLocalStore() {
  return std::make_unique<LocalStore>();
}

}  // namespace ballast
