#ifndef BALLAST_SERVER_CORPUS_OPEN_FILES_H_
#define BALLAST_SERVER_CORPUS_OPEN_FILES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/corpus/file.h"
#include "server/corpus/read_from.h"
#include "server/corpus/source_files.h"

namespace ballast {

// The data files of an index, opened when they are first needed. At most
// kMaxOpen stay open, and those that a caller still holds: file N shares its
// place with N + kMaxOpen, so that files in different places share no lock.
// Thread-safe.
class OpenFiles {
 public:
  static constexpr size_t kMaxOpen = 256;

  explicit OpenFiles(std::vector<SourceFile> files);

  // File `number`, which must be below the number of files, with the `stamp`
  // that the index has for it. Blocks on the disk where the file is not open.
  // Errors: those of File::Open; DATA_LOSS (it has changed); ABORTED (from
  // memory: it is not open).
  absl::StatusOr<std::shared_ptr<const File>> Get(
      uint32_t number, const FileStamp& stamp,
      ReadFrom from = ReadFrom::kDisk) const;

 private:
  struct Place {
    Mutex mutex;
    uint32_t number ABSL_GUARDED_BY(mutex) = 0;
    std::shared_ptr<const File> file ABSL_GUARDED_BY(mutex);
  };

  const std::vector<SourceFile> files_;
  mutable std::array<Place, kMaxOpen> places_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_OPEN_FILES_H_
