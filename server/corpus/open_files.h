#ifndef BALLAST_SERVER_CORPUS_OPEN_FILES_H_
#define BALLAST_SERVER_CORPUS_OPEN_FILES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/corpus/file.h"
#include "server/corpus/open_file_cache.h"
#include "server/corpus/read_from.h"
#include "server/corpus/source_files.h"

namespace ballast {

// The data files of an index, opened when first needed and kept open by a cache
// that sources share. Thread-safe.
class OpenFiles {
 public:
  OpenFiles(std::vector<SourceFile> files,
            std::shared_ptr<OpenFileCache> cache);
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // File `number`, which must be below the number of files. Blocks on the disk
  // if the file is not open. Errors, all transient faults: UNAVAILABLE (it
  // cannot be opened), ABORTED (kMemory, and it is not open).
  absl::StatusOr<std::shared_ptr<const File>> Get(
      uint32_t number, ReadFrom from = ReadFrom::kDisk) const;

  // Closes `file`, which Get returned for `number`: the next Get opens it
  // again.
  void Drop(uint32_t number, const File& file) const;

 private:
  const std::vector<SourceFile> files_;
  const std::shared_ptr<OpenFileCache> cache_;
  const std::unique_ptr<OpenFileCache::Slot[]> slots_;  // one per file
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_OPEN_FILES_H_
