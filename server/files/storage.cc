#include "server/files/storage.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/files/arrow_store.h"
#include "server/files/hub_store.h"
#include "server/files/path_pattern.h"

namespace ballast {

std::vector<StoreEntry> FolderListing(const std::string& folder,
                                      std::vector<StoreEntry> all) {
  const std::string prefix = folder + "/";
  std::vector<StoreEntry> direct;
  absl::flat_hash_set<std::string> folders;
  for (StoreEntry& entry : all) {
    if (entry.path.compare(0, prefix.size(), prefix) != 0) continue;
    const size_t slash = entry.path.find('/', prefix.size());
    if (slash == std::string::npos) {
      direct.push_back(std::move(entry));
    } else if (std::string name = entry.path.substr(0, slash);
               folders.insert(name).second) {
      direct.push_back({.path = std::move(name), .is_folder = true});
    }
  }
  return direct;
}

namespace {

// Errors other than NOT_FOUND become UNAVAILABLE, as for every store.
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

namespace {

// Objects whose versions are remembered, some 150 bytes each.
constexpr size_t kMaxKnownObjects = size_t{1} << 20;
constexpr size_t kStampThreads = 32;
constexpr char kGlobs[] = "*?[\\";

bool HasGlob(absl::string_view path) {
  return path.find_first_of(kGlobs) != absl::string_view::npos;
}

// "s3://"
std::string GetScheme(const std::string& url) {
  return url.substr(0, url.find("://") + 3);
}

}  // namespace

Storage& Storage::OfProcess() {
  static Storage& storage = *new Storage;
  return storage;
}

absl::Status Storage::Configure(const v1::Storage& settings) {
  std::shared_ptr<DiskCache> cache;
  {
    MutexLock lock(&mutex_);
    const bool same_cache = cache_ != nullptr && settings.has_cache() &&
                            settings_.cache().dir() == settings.cache().dir() &&
                            settings_.cache().size() == settings.cache().size();
    if (same_cache) cache = cache_;
  }
  if (settings.has_cache() && cache == nullptr) {
    BALLAST_ASSIGN_OR_RETURN(
        cache, DiskCache::Open(settings.cache().dir(), settings.cache().size(),
                               &counters_));
  }
  MutexLock lock(&mutex_);
  settings_ = settings;
  cache_ = std::move(cache);
  return absl::OkStatus();
}

void Storage::AddStore(const std::string& scheme,
                       std::unique_ptr<ObjectStore> store) {
  MutexLock lock(&mutex_);
  auto reader = std::make_unique<StoreReader>(
      store.get(), std::max(settings_.connections(), 1u), &counters_);
  stores_[scheme] = {std::move(store), std::move(reader)};
}

absl::StatusOr<std::pair<StoreReader*, std::string>> Storage::Find(
    absl::string_view url) {
  BALLAST_ASSIGN_OR_RETURN(StoreUrl parsed, ParseStoreUrl(url));
  MutexLock lock(&mutex_);
  Opened& opened = stores_[parsed.scheme];
  if (opened.reader == nullptr) {
    if (parsed.scheme == "file") {
      opened.store = MakeLocalStore();
    } else if (parsed.scheme == "hf") {
      BALLAST_ASSIGN_OR_RETURN(HubAccess access, ResolveHubAccess());
      opened.store = MakeHubStore(std::move(access), Clock::Real());
    } else if (parsed.scheme == "https" || parsed.scheme == "http") {
      opened.store = MakeWebStore(parsed.scheme, Clock::Real());
    } else {
      BALLAST_ASSIGN_OR_RETURN(opened.store,
                               MakeArrowStore(parsed.scheme, settings_));
    }
    opened.reader = std::make_unique<StoreReader>(
        opened.store.get(), std::max(settings_.connections(), 1u), &counters_);
  }
  if (memory_ == nullptr) {
    memory_ = std::make_unique<SpanMemory>(settings_.memory());
  }
  return std::make_pair(opened.reader.get(), std::move(parsed.path));
}

absl::StatusOr<std::vector<std::string>> Storage::ListFiles(
    absl::string_view directory, absl::string_view pattern) {
  if (!absl::StrContains(pattern, "://")) return ExpandPath(directory, pattern);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ExpandBraces(pattern));
  std::vector<std::string> files;
  absl::flat_hash_set<std::string> seen;
  for (const std::string& name : names) {
    std::vector<std::string> matches;
    if (!IsStoreUrl(name)) {
      BALLAST_ASSIGN_OR_RETURN(matches, ExpandPath(directory, name));
    } else if (HasGlob(name)) {
      BALLAST_ASSIGN_OR_RETURN(matches, ListObjects(name));
    } else {
      // Refuses names that can never be opened.
      BALLAST_RETURN_IF_ERROR(Find(name).status());
      matches = {name};
    }
    for (std::string& file : matches) {
      if (seen.insert(file).second) files.push_back(std::move(file));
    }
  }
  return files;
}

absl::StatusOr<std::vector<std::string>> Storage::ListObjects(
    const std::string& url) {
  BALLAST_ASSIGN_OR_RETURN(const auto found, Find(url));
  const auto& [reader, pattern] = found;
  const size_t glob = pattern.find_first_of(kGlobs);
  const size_t slash = pattern.rfind('/', glob);
  if (slash == std::string::npos || slash == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\" has a glob in the name of its bucket"));
  }
  const std::string folder = pattern.substr(0, slash);
  const bool recursive = pattern.find('/', glob) != std::string::npos;
  BALLAST_ASSIGN_OR_RETURN(const std::vector<StoreEntry> entries,
                           reader->List(folder, recursive));
  const std::string scheme = GetScheme(url);
  std::vector<std::string> files;
  uint64_t objects = 0;
  for (const StoreEntry& entry : entries) {
    if (entry.is_folder) continue;
    ++objects;
    if (fnmatch(pattern.c_str(), entry.path.c_str(),
                FNM_PATHNAME | FNM_PERIOD) == 0) {
      files.push_back(absl::StrCat(scheme, entry.path));
    }
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no object matches \"", url, "\", of ", objects, " in ", scheme, folder,
        recursive ? " and the folders below" : ""));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<StoreEntry>> Storage::ListFolder(
    const std::string& url) {
  BALLAST_ASSIGN_OR_RETURN(const auto found, Find(url));
  const std::string scheme = GetScheme(url);
  BALLAST_ASSIGN_OR_RETURN(
      std::vector<StoreEntry> entries,
      found.first->List(found.second, /*recursive=*/scheme == "gs://"));
  // Arrow's client for Google leaves out the folders in a listing.
  if (scheme == "gs://") {
    entries = FolderListing(found.second, std::move(entries));
  }
  for (StoreEntry& entry : entries) entry.path.insert(0, scheme);
  std::sort(
      entries.begin(), entries.end(),
      [](const auto& one, const auto& other) { return one.path < other.path; });
  return entries;
}

absl::StatusOr<FileStamp> Storage::Stamp(const std::string& path) {
  if (!IsStoreUrl(path)) return StampFile(path);
  BALLAST_ASSIGN_OR_RETURN(const auto found, Find(path));
  BALLAST_ASSIGN_OR_RETURN(const FileStamp stamp,
                           found.first->Stat(found.second));
  Remember(path, stamp);
  return stamp;
}

absl::StatusOr<std::vector<FileStamp>> Storage::StampAll(
    const std::vector<std::string>& paths) {
  std::vector<FileStamp> stamps(paths.size());
  const bool remote = std::any_of(paths.begin(), paths.end(),
                                  [](const auto& p) { return IsStoreUrl(p); });
  BALLAST_RETURN_IF_ERROR(RunAll(
      paths.size(), remote ? kStampThreads : 1, [&](size_t i) -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(stamps[i], Stamp(paths[i]));
        return absl::OkStatus();
      }));
  return stamps;
}

absl::StatusOr<File> Storage::Open(const std::string& path, ReadFrom from) {
  const auto not_here = [&] {
    return absl::AbortedError(absl::StrCat(path, ": not opened from memory"));
  };
  if (!IsStoreUrl(path)) {
    if (from == ReadFrom::kMemory) return not_here();
    return File::Open(path);
  }
  BALLAST_ASSIGN_OR_RETURN(const auto found, Find(path));
  std::optional<FileStamp> stamp;
  ObjectParts parts;
  parts.reader = found.first;
  parts.counters = &counters_;
  parts.on_change = [this](const std::string& url) { Forget(url); };
  {
    MutexLock lock(&mutex_);
    const auto known = known_.find(path);
    if (known != known_.end()) stamp = known->second;
    parts.memory = memory_.get();
    parts.cache = cache_;
  }
  if (!stamp.has_value()) {
    if (from == ReadFrom::kMemory) return not_here();
    BALLAST_ASSIGN_OR_RETURN(stamp, Stamp(path));
  }
  return File::OfStore(
      MakeOpenObject(std::move(parts), path, found.second, *stamp));
}

void Storage::Remember(const std::string& url, const FileStamp& stamp) {
  MutexLock lock(&mutex_);
  if (known_.size() >= kMaxKnownObjects) known_.clear();
  known_[url] = stamp;
}

void Storage::Forget(const std::string& url) {
  MutexLock lock(&mutex_);
  known_.erase(url);
}

bool Storage::in_use() const {
  MutexLock lock(&mutex_);
  return !stores_.empty();
}

std::shared_ptr<DiskCache> Storage::cache() const {
  MutexLock lock(&mutex_);
  return cache_;
}

namespace {

constexpr uint64_t kPart = uint64_t{8} << 20;
constexpr char kPrefix[] = "ballast-copy";
// Attempts to make a file that no other process removes before it is locked.
constexpr int kAttempts = 20;

// Whether the open file still has a name.
bool IsThere(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

// The copy that was requested last. Destroyed at the end of the process, with
// the file.
struct Last {
  Mutex mutex;
  std::string url ABSL_GUARDED_BY(mutex);
  FileStamp stamp ABSL_GUARDED_BY(mutex);
  std::shared_ptr<const LocalCopy> copy ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const File& object) {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat(object.path(), ": cannot be copied: ", error.message(),
                     "; set TMPDIR to a folder on a local disk"));
  }
  RemoveLeftCopies(folder);
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<LocalCopy> copy,
                           LocalCopy::Create(folder));
  const uint64_t size = object.stamp().size;
  for (uint64_t at = 0; at < size; at += kPart) {
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             object.ReadAt(at, std::min(kPart, size - at)));
    BALLAST_RETURN_IF_ERROR(copy->Write(bytes));
  }
  BALLAST_RETURN_IF_ERROR(FileView(&object).CheckUnchanged());
  return copy;
}

}  // namespace

LocalCopy::~LocalCopy() { unlink(path().c_str()); }

absl::StatusOr<std::shared_ptr<LocalCopy>> LocalCopy::Create(
    const std::string& folder) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BALLAST_ASSIGN_OR_RETURN(
        File file, File::CreateUnique(absl::StrCat(folder, "/", kPrefix)));
    OwnedFd lock(open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    // Where files cannot be locked, no process takes another's copy for its
    // own.
    const bool is_mine =
        lock.get() >= 0 &&
        (flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        IsThere(lock.get());
    if (is_mine) {
      return std::shared_ptr<LocalCopy>(
          new LocalCopy(std::move(file), std::move(lock)));
    }
    const int number = errno;
    unlink(file.path().c_str());
    if (lock.get() < 0 && number != ENOENT) {
      return FileError(number, "open", file.path());
    }
    // Another process took it for a leftover file, and removes it.
  }
  return absl::UnavailableError(
      absl::StrCat(folder, ": other processes removed ", kAttempts,
                   " new files; set TMPDIR to another folder on a local disk"));
}

void RemoveLeftCopies(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!absl::StartsWith(entry->path().filename().string(),
                          absl::StrCat(kPrefix, "."))) {
      continue;
    }
    const OwnedFd file(
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      unlink(path.c_str());
    }
  }
}

absl::StatusOr<std::shared_ptr<const LocalCopy>> CopyToDisk(
    const std::string& url) {
  static Last last;
  BALLAST_ASSIGN_OR_RETURN(const FileStamp stamp,
                           Storage::OfProcess().Stamp(url));
  MutexLock lock(&last.mutex);
  if (last.copy != nullptr && last.url == url && last.stamp == stamp) {
    return last.copy;
  }
  BALLAST_ASSIGN_OR_RETURN(const File object, Storage::OfProcess().Open(url));
  BALLAST_ASSIGN_OR_RETURN(auto copy, Fetch(object));
  last.copy = copy;
  last.url = url;
  last.stamp = object.stamp();
  return copy;
}

absl::StatusOr<std::string> ReadSmallObject(Storage* storage,
                                            const std::string& url,
                                            size_t most) {
  BALLAST_ASSIGN_OR_RETURN(const File file, storage->Open(url));
  const uint64_t size = file.stamp().size;
  if (size > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(url, ": ", size, " bytes; wanted at most ", most));
  }
  BALLAST_ASSIGN_OR_RETURN(std::string text, file.ReadAt(0, size));
  BALLAST_RETURN_IF_ERROR(FileView(&file).CheckUnchanged());
  return text;
}

}  // namespace ballast
