#ifndef BALLAST_SERVER_CORPUS_FILE_H_
#define BALLAST_SERVER_CORPUS_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/read_from.h"

namespace ballast {

// `number` (an errno) as a status that names `path`. Errors of the path or of
// rights keep their code: NOT_FOUND, PERMISSION_DENIED, …. All others, which
// may be gone at the next attempt (EIO, ESTALE, EMFILE, ENOMEM, …), are
// UNAVAILABLE and advise what to do.
absl::Status FileError(int number, absl::string_view action,
                       absl::string_view path);

// Identifies one state of a file.
struct FileStamp {
  uint64_t size = 0;
  int64_t mtime_ns = 0;

  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.size == b.size && a.mtime_ns == b.mtime_ns;
  }
};

// The stamp of the file that `path` names. Errors: FileError's;
// INVALID_ARGUMENT where it is not a regular file.
absl::StatusOr<FileStamp> StampFile(const std::string& path);

// Whether `descriptor` lies in a local file system, so that opening a file that
// is known in memory waits for no other machine.
bool OpensAlone(int descriptor);

// A file descriptor that closes itself. Movable. ReadAt and IsUnchanged are
// thread-safe, the rest thread-compatible. All calls block on the disk.
class File {
 public:
  // A regular file, for reading. Errors: FileError's; INVALID_ARGUMENT where it
  // is not a regular file (a pipe or device would block us).
  static absl::StatusOr<File> Open(const std::string& path);
  // The same for a file below `folder`, a descriptor, at the path `relative`,
  // which no link leads out of, in the same mount. Uses only what the system
  // has in memory; ABORTED otherwise, also if the file is not a regular one.
  // The mount must be a local one (OpensAlone). Errors call the file `path`.
  static absl::StatusOr<File> OpenInMemory(int folder, absl::string_view path,
                                           const std::string& relative);
  // An empty file, for writing; an existing file is truncated.
  static absl::StatusOr<File> Create(const std::string& path);
  // The same under a new name that begins with `prefix`.
  static absl::StatusOr<File> CreateUnique(const std::string& prefix);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  // As it was when the file was opened.
  const FileStamp& stamp() const { return stamp_; }

  // Whether the file still has the stamp that it was opened with; from memory,
  // as far as the system knows. A deleted or replaced file is unchanged.
  // Errors: as FileError.
  absl::StatusOr<bool> IsUnchanged(ReadFrom from = ReadFrom::kDisk) const;

  // Reads exactly `size` bytes at `offset` into `out`. Errors: DATA_LOSS (the
  // file ends before that), UNAVAILABLE (as FileError), ABORTED (not all of it
  // is in memory, or the file system cannot tell).
  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out,
                      ReadFrom from = ReadFrom::kDisk) const;
  // The same into a string. The file's end is checked before memory is taken.
  absl::StatusOr<std::string> ReadAt(uint64_t offset, uint64_t size,
                                     ReadFrom from = ReadFrom::kDisk) const;

  // Maps a file that was opened for reading, read-only, stamp().size bytes,
  // which must not be 0. The caller unmaps; the mapping outlives the File.
  absl::StatusOr<const char*> Map() const;
  // The file's path without links, as it was opened: later changes of the links
  // do not affect it. Needs /proc.
  absl::StatusOr<std::string> RealPath() const;

  // Appends after the last write.
  absl::Status Write(absl::string_view bytes);
  // Waits until the bytes are on the disk.
  absl::Status Sync();

 private:
  File(std::string path, int descriptor);
  void Close();

  std::string path_;
  int descriptor_;
  FileStamp stamp_;
};

// A file together with the way to read it. A value; does not own the file.
class FileView {
 public:
  FileView(const File* file, ReadFrom from = ReadFrom::kDisk)
      : file_(file), from_(from) {}

  // As File's.
  absl::StatusOr<bool> IsUnchanged() const { return file_->IsUnchanged(from_); }
  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out) const {
    return file_->ReadAt(offset, size, out, from_);
  }
  absl::StatusOr<std::string> ReadAt(uint64_t offset, uint64_t size) const {
    return file_->ReadAt(offset, size, from_);
  }

 private:
  const File* file_;
  ReadFrom from_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_FILE_H_
