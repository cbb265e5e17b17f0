#ifndef BALLAST_SERVER_CORPUS_TAR_TAR_WRITER_H_
#define BALLAST_SERVER_CORPUS_TAR_TAR_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"

namespace ballast {

// Writes a ustar file that depends on the members alone: time, user and group
// are 0, the mode is 0644. Thread-compatible; blocks on the disk.
//
//   BALLAST_ASSIGN_OR_RETURN(auto writer, TarWriter::Create("docs-000.tar"));
//   BALLAST_RETURN_IF_ERROR(writer->Add("000000.json", json));
//   BALLAST_RETURN_IF_ERROR(writer->Finish());
class TarWriter {
 public:
  // Creates `path`, truncating an existing file. Errors: NOT_FOUND (no such
  // directory), PERMISSION_DENIED, ….
  static absl::StatusOr<std::unique_ptr<TarWriter>> Create(
      const std::string& path);

  // Appends a member. Errors: INVALID_ARGUMENT (`name` is empty, holds a NUL
  // byte or does not fit a ustar header, which has room for 100 bytes, or for
  // 155 and 100 around a '/'; 8 GiB or more); as File::Write.
  absl::Status Add(absl::string_view name, absl::string_view bytes);
  // Appends a member of `size` bytes, copied from an open file from `offset`
  // on. Takes a megabyte of memory. Errors: as Add; DATA_LOSS (the file ends
  // before); UNAVAILABLE (it cannot be read).
  absl::Status AddFrom(absl::string_view name, int fd, uint64_t offset,
                       uint64_t size);

  // Writes the end mark. Nothing may be added after it; a file without it is
  // incomplete.
  absl::Status Finish();
  // Waits until the file is on the disk. Errors: as File::Sync.
  absl::Status Sync() { return file_.Sync(); }

 private:
  explicit TarWriter(File file) : file_(std::move(file)) {}

  absl::Status WriteHeader(absl::string_view name, uint64_t size);
  // Fills the last block of a member of `size` bytes.
  absl::Status Pad(uint64_t size);

  File file_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_TAR_TAR_WRITER_H_
