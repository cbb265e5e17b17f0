#ifndef BALLAST_SERVER_FILES_STORAGE_H_
#define BALLAST_SERVER_FILES_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "common/small_file.h"
#include "proto/config.pb.h"
#include "server/files/disk_cache.h"
#include "server/files/entry_file.h"
#include "server/files/file.h"
#include "server/files/object_store.h"
#include "server/files/store_reader.h"

namespace ballast {

// The objects and folders directly in `folder`, derived from `all` objects
// below it: for stores that list no folders. Pure.
std::vector<StoreEntry> FolderListing(const std::string& folder,
                                      std::vector<StoreEntry> all);

// Files of a mounted file system as a store: paths file:///FOLDER/NAME. For
// slow network file systems that should go through storage.cache. (Paths
// without a scheme are opened directly, server/files/file.h.)
std::unique_ptr<ObjectStore> MakeLocalStore();

// The place of data files: all are opened here. A path is a file of a mounted
// file system, or an object of a store (StoreUrl). Thread-safe; every call
// but the trivial ones blocks on the disk or the store.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // The storage of the process, at first with the default settings.
  static Storage& OfProcess();

  // Sets the section `storage` of a loaded configuration. Takes effect only for
  // stores, memory and cache that are not in use yet: call it before the first
  // use of a store's path. Opens the cache. Errors: as DiskCache::Open.
  absl::Status Configure(const v1::Storage& settings);
  // Adds a store for a scheme, in place of the one that would be made.
  void AddStore(const std::string& scheme, std::unique_ptr<ObjectStore> store);

  // The files that `pattern` names, as ExpandPath; globs of a store are matched
  // against its objects; only "/" matches "/". Names without a glob are not
  // looked up in a store. Errors: as ExpandPath and ParseStoreUrl; the store's
  // errors; UNIMPLEMENTED and FAILED_PRECONDITION (as MakeArrowStore).
  absl::StatusOr<std::vector<std::string>> ListFiles(
      absl::string_view directory, absl::string_view pattern);

  // The objects and folders directly in a folder of a store, `url`. Their paths
  // are URLs, in the order of their names. A folder that does not exist is
  // empty. Errors: as ListFiles.
  absl::StatusOr<std::vector<StoreEntry>> ListFolder(const std::string& url);

  // OK if there is a store for `url`: as ListFiles of a name without a glob.
  absl::Status CheckStore(absl::string_view url) { return Find(url).status(); }

  // The stamp that the file has now. Errors: as StampFile; the store's errors.
  absl::StatusOr<FileStamp> Stamp(const std::string& path);
  // The stamps of all `paths`; several objects at a time. Returns the error of
  // the first path that has one.
  absl::StatusOr<std::vector<FileStamp>> StampAll(
      const std::vector<std::string>& paths);

  // Opens a file for reading. An object is opened in the version that was seen
  // last; if one was seen, no request is made. A read detects that this version
  // is gone (object_store.h), and the next Open then asks the store. kMemory:
  // ABORTED if a request or the disk is needed. Errors: as File::Open; the
  // store's errors.
  absl::StatusOr<File> Open(const std::string& path,
                            ReadFrom from = ReadFrom::kDisk);

  // Whether an object of a store has been requested.
  bool in_use() const;
  const StorageCounters& counters() const { return counters_; }
  // Null without storage.cache.
  std::shared_ptr<DiskCache> cache() const;

 private:
  // A store in use.
  struct Opened {
    std::unique_ptr<ObjectStore> store;
    std::unique_ptr<StoreReader> reader;
  };
  // The reader of the URL's store, and the path within it.
  absl::StatusOr<std::pair<StoreReader*, std::string>> Find(
      absl::string_view url);
  absl::StatusOr<std::vector<std::string>> ListObjects(const std::string& url);
  void Remember(const std::string& url, const FileStamp& stamp);
  void Forget(const std::string& url);

  StorageCounters counters_;
  mutable Mutex mutex_;
  v1::Storage settings_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Opened> stores_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SpanMemory> memory_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<DiskCache> cache_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, FileStamp> known_ ABSL_GUARDED_BY(mutex_);
};

// A file of the system's folder for temporary files (TMPDIR) that holds one
// version of an object, for a library that reads files by their path. The
// destructor removes it. If a process is killed, the file stays until another
// process makes a copy there: each process holds a lock on its own file.
class LocalCopy {
 public:
  // Makes an empty file in `folder`. Errors: as File::CreateUnique; UNAVAILABLE
  // (it cannot be opened, or other processes remove every attempt at once).
  static absl::StatusOr<std::shared_ptr<LocalCopy>> Create(
      const std::string& folder);
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;

  const std::string& path() const { return file_.path(); }
  // Appends. Errors: as File::Write.
  absl::Status Write(absl::string_view bytes) { return file_.Write(bytes); }

 private:
  LocalCopy(File file, OwnedFd lock)
      : file_(std::move(file)), lock_(std::move(lock)) {}

  File file_;
  const OwnedFd lock_;
};

// Removes what killed processes have left in `folder`.
void RemoveLeftCopies(const std::string& folder);

// A copy of the object's present version. Callers share it, also later callers
// that request the same version before any other is requested. Asks the store
// for the version in each call. Blocks on the store and the disk; one object is
// fetched at a time. Errors: as Storage::Open and File::ReadAt; UNAVAILABLE
// also if the object changes meanwhile.
absl::StatusOr<std::shared_ptr<const LocalCopy>> CopyToDisk(
    const std::string& url);

// The bytes of the object `url`, all of one version, at most `most`. Blocks on
// the store. Errors, naming the object: INVALID_ARGUMENT (more bytes);
// UNAVAILABLE (it changed meanwhile); as Storage::Open and File::ReadAt.
absl::StatusOr<std::string> ReadSmallObject(Storage* storage,
                                            const std::string& url,
                                            size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_STORAGE_H_
