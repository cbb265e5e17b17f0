#ifndef BALLAST_SERVER_FILES_FILE_H_
#define BALLAST_SERVER_FILES_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/small_file.h"
#include "server/files/object_store.h"

namespace ballast {

// `number` (an errno) as a status that names `path`. Errors of the path or of
// permissions keep their code: NOT_FOUND, PERMISSION_DENIED, …. All others,
// which may be gone at the next attempt (EIO, ESTALE, EMFILE, ENOMEM, …), are
// UNAVAILABLE and advise what to do.
absl::Status FileError(int number, absl::string_view action,
                       absl::string_view path);

// The stamp of the file that `path` names. Errors: as FileError;
// INVALID_ARGUMENT if it is not a regular file.
absl::StatusOr<FileStamp> StampFile(const std::string& path);

// The state of the open file `descriptor`; `path` is for messages. kMemory: a
// network file system answers from its cached attributes, which belong to the
// bytes that it has cached. Errors: as FileError.
absl::StatusOr<FileState> StateOfDescriptor(int descriptor,
                                            const std::string& path,
                                            ReadFrom from);

// Returns whether `descriptor` is on a local file system, where opening a file
// whose entry is in memory waits for no other machine.
bool OpensAlone(int descriptor);

// A file of a mounted file system: a descriptor that closes itself. Or an
// object of a store, which Storage::Open opens and which can only be read.
// Movable. ReadAt and State are thread-safe, the rest thread-compatible.
// All calls block on the disk or the store. An object's errors are listed in
// object_store.h.
class File {
 public:
  // Opens a regular file for reading. Errors: as FileError; INVALID_ARGUMENT if
  // it is not a regular file (a pipe or device would block us).
  static absl::StatusOr<File> Open(const std::string& path);
  // An object of a store.
  static File OfStore(std::shared_ptr<const StoredObject> object);
  // Opens a file for reading at the path `relative` below `folder`, a
  // descriptor; no link may lead out of the folder or its mount. Uses only what
  // the system has in memory: ABORTED otherwise, also if the file is not a
  // regular one. The mount must be local (OpensAlone). Errors call the file
  // `path`.
  static absl::StatusOr<File> OpenInMemory(int folder, absl::string_view path,
                                           const std::string& relative);
  // Creates an empty file for writing; an existing file is truncated.
  static absl::StatusOr<File> Create(const std::string& path);
  // Opens a file for reading and appending, and creates it if it is missing.
  // Locks it until it is closed: FAILED_PRECONDITION if another process has.
  static absl::StatusOr<File> OpenToAppend(const std::string& path);
  // Creates an empty file for writing under a new name that begins with
  // `prefix`.
  static absl::StatusOr<File> CreateUnique(const std::string& prefix);
  // As CreateUnique, and locks it until it is closed.
  static absl::StatusOr<File> CreateUniqueLocked(const std::string& prefix);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  // The stamp that the file had when it was opened.
  const FileStamp& stamp() const { return opened_.stamp; }
  // The state that the file had when it was opened.
  const FileState& opened() const { return opened_; }
  // Null unless it is an object of a store.
  const std::shared_ptr<const StoredObject>& object() const { return object_; }

  // The state of the mounted file now (kMemory: as far as the system knows
  // without asking a disk or network). Of an object: as it was opened. Errors:
  // as FileError.
  absl::StatusOr<FileState> State(ReadFrom from = ReadFrom::kDisk) const;

  // Reads exactly `size` bytes at `offset` into `out`. Errors: DATA_LOSS (the
  // file ends before that), UNAVAILABLE (as FileError), ABORTED (not all of it
  // is known to be in memory).
  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out,
                      ReadFrom from = ReadFrom::kDisk) const;
  // Reads `size` bytes at `offset` into a string. Checks the file's end before
  // it allocates memory. Errors: as above.
  absl::StatusOr<std::string> ReadAt(uint64_t offset, uint64_t size,
                                     ReadFrom from = ReadFrom::kDisk) const;

  // Maps all stamp().size bytes of a file that was opened for reading,
  // read-only; the size must not be 0. The caller unmaps; the mapping outlives
  // the File.
  absl::StatusOr<const char*> Map() const;
  // Another descriptor of a mounted file. Errors: as FileError.
  absl::StatusOr<OwnedFd> Duplicate() const;
  // The path of the opened file with all links resolved; later changes of the
  // links do not affect it. Needs /proc.
  absl::StatusOr<std::string> RealPath() const;

  // Lets the system read the range of a mounted file ahead, without waiting.
  void ReadSoon(ByteRange range) const;

  // Appends to the file.
  absl::Status Write(absl::string_view bytes);
  // Drops the bytes from `size` on.
  absl::Status Truncate(uint64_t size);
  // Sets the time of the last modification, which a write sets anew.
  absl::Status SetTime(int64_t mtime_ns);
  // Waits until the bytes are on the disk.
  absl::Status Sync();

 private:
  File(std::string path, int descriptor);
  void Close();

  std::string path_;
  int descriptor_;
  FileState opened_;
  std::shared_ptr<const StoredObject> object_;
};

// Bytes of a file, or of other bytes that are kept with it.
struct FilePiece {
  uint64_t offset = 0;
  uint64_t size = 0;
  bool in_file = true;
};

// A file and the way to read it. A value; does not own the file. Copies share
// what Load fetched, and are read by one thread at a time.
class FileView {
 public:
  // `owner` as in StoredObject::Fetch.
  FileView(const File* file, ReadFrom from = ReadFrom::kDisk,
           uint64_t owner = 0)
      : file_(file), from_(from), owner_(owner), begin_(file->opened()) {}

  const std::string& path() const { return file_->path(); }
  // When the file was opened.
  uint64_t size() const { return file_->stamp().size; }
  const FileStamp& stamp() const { return file_->stamp(); }

  // Takes the present state of a file that was opened some time ago as the
  // beginning of a read. Without it a read begins when the file is opened.
  // Errors: as File::State.
  absl::Status Begin();
  // The state at the beginning of the read.
  const FileState& begin() const { return begin_; }
  // OK if nothing has changed the file since then, so that all bytes read are
  // of one version. What Load fetched of an object is. Errors: UNAVAILABLE (it
  // has changed); as File::State; of an object as StoredObject::IsUnchanged.
  absl::Status CheckUnchanged() const;

  // Of an object of a store: fetches `ranges`, which later reads within them
  // find in memory or in the cache; whatever else is read from now on is of the
  // version that was opened, too. Nothing otherwise. Errors: as
  // StoredObject::Fetch.
  absl::Status Load(const std::vector<ByteRange>& ranges);

  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out) const;
  absl::StatusOr<std::string> ReadAt(uint64_t offset, uint64_t size) const;

  // As File::ReadSoon.
  void ReadSoon(ByteRange range) const;

  // Whether Load has found something, and all of it in the cache: what is not
  // read now can be read there later.
  bool IsInCache() const;

  // As File::Duplicate.
  absl::StatusOr<OwnedFd> Duplicate() const { return file_->Duplicate(); }

  // The file's object, or null; and how to fetch more for the same owner.
  const StoredObject* object() const { return file_->object().get(); }
  uint64_t owner() const { return owner_; }
  ReadFrom from() const { return from_; }

 private:
  // The range that covers `range`; null: read the file itself.
  absl::StatusOr<std::shared_ptr<const StoredRange>> RangeAt(
      ByteRange range) const;

  const File* file_;
  ReadFrom from_;
  uint64_t owner_;
  FileState begin_;
  bool loaded_ = false;
  std::vector<std::shared_ptr<const StoredRange>> ranges_;
};

// Copies `pieces` to `out`, one after the other. Errors: as FileView::ReadAt.
absl::Status ReadPieces(const FileView& file,
                        absl::Span<const FilePiece> pieces,
                        absl::string_view others, char* out);

// Replaces `path` with what `write` writes to an empty file: writes a file
// next to it, syncs it to the disk and renames it. Creates missing folders.
// After an error `path` is as it was. Two concurrent writers do not disturb
// each other; the last one's file stays. The unfinished file is called
// `PATH.writing.XXXXXX` and is locked while its process lives. Blocks on the
// disk. Errors: as File, naming the file; as CheckReplaceable; of `write`.
absl::Status ReplaceFile(const std::string& path,
                         absl::FunctionRef<absl::Status(File& file)> write);

// Removes the unfinished files that killed processes left in `folder`, of the
// file `name` or, if it is empty, of all, so that they do not fill the disk. A
// failure is no error.
void RemoveUnfinished(const std::string& folder, absl::string_view name = "");

// Replaces `path` with `pieces`, concatenated, once RemoveUnfinished has
// removed what is left of it. Else as ReplaceFile.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces);

// INVALID_ARGUMENT if `path` is a device, a pipe or a socket, which a rename
// would replace.
absl::Status CheckReplaceable(const std::string& path);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_FILE_H_
