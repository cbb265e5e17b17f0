#ifndef BALLAST_SERVER_DATA_FILE_SOURCE_H_
#define BALLAST_SERVER_DATA_FILE_SOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "proto/config.pb.h"
#include "server/data/index/index_file.h"
#include "server/data/record_parser.h"
#include "server/data/source_files.h"
#include "server/files/file.h"
#include "server/files/path_pattern.h"
#include "server/sample/data_fault.h"
#include "server/sample/sample_source.h"

namespace ballast {

// Bounds the data files that all sources of a process keep open together.
// Closes the least recently used file first. Files that a reader holds stay
// open until it is done. Thread-safe.
class OpenFileCache {
 public:
  // One file's slot in the cache. Readers of different files share no lock.
  class Slot {
   public:
    // The open file, or null.
    std::shared_ptr<const File> Get(const OpenFileCache& cache);

   private:
    friend class OpenFileCache;
    Mutex mutex_;
    std::shared_ptr<const File> file_ ABSL_GUARDED_BY(mutex_);
    std::atomic<uint64_t> last_used_{0};
  };

  // Keeps at most `capacity` files (at least 1) open.
  explicit OpenFileCache(size_t capacity) : capacity_(capacity) {}

  // The cache of the process. The first call raises the limit of descriptors
  // (common/machine.h) and takes a quarter of it, so that connections and
  // media files find descriptors too; 8 to 4096 files.
  static std::shared_ptr<OpenFileCache> OfProcess();

  // Puts `file` into the slot in place of the present one.
  void Put(Slot* slot, std::shared_ptr<const File> file);
  // Empties the slot if it holds `file`, or in any case if `file` is null.
  void Remove(Slot* slot, const File* file);
  // Closes half of the files. For a process that has run out of descriptors.
  void CloseHalf();

  size_t capacity() const { return capacity_; }

 private:
  void CloseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  mutable std::atomic<uint64_t> uses_{0};
  Mutex mutex_;  // taken before a slot's
  std::vector<Slot*> open_ ABSL_GUARDED_BY(mutex_);
};

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

// A source whose samples are in files: reads the records of an index with the
// parser of the source's format, and checks what was read against the index.
// Thread-safe.
class FileSource final : public SampleSource {
 public:
  FileSource(std::unique_ptr<const RecordParser> parser,
             std::shared_ptr<const IndexFile> index,
             std::vector<SourceFile> files,
             std::shared_ptr<OpenFileCache> cache)
      : parser_(std::move(parser)),
        index_(std::move(index)),
        in_store_(!files.empty() && IsStoreUrl(files[0].path)),
        files_(std::move(files), std::move(cache)) {}

  const SourceIndex& index() const override { return *index_; }
  const IndexFile& index_file() const { return *index_; }

  // Returns a data fault if the bytes are not those indexed although the file
  // is the version that was indexed, from the read's begin to its end. If it is
  // another one, or changes meanwhile, the result is UNAVAILABLE; only a text
  // that is the same, which its hash shows, is still read. Named media, of
  // which the index knows the time of the latest alone, are handled likewise.
  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                          ReadParts parts) const override;
  SampleLocation Locate(uint64_t ordinal) const override;
  absl::StatusOr<uint64_t> FetchAhead(uint64_t ordinal,
                                      const MakeRoom& make_room) const override;
  bool IsHere(uint64_t ordinal) const override;
  void AddOwners(uint64_t ordinal,
                 std::vector<uint64_t>* owners) const override;
  bool InStore() const override;

  // Reads any record of the index, including those left out. `number` must be
  // below its num_records().
  absl::StatusOr<FaultOr<RawSample>> ReadNumber(uint64_t number,
                                                ReadParts parts) const;

 private:
  // Reads the parts of record `number` from its file. Data faults are returned
  // as statuses that SeparateFault recognises.
  absl::StatusOr<RawSample> ReadRecord(uint64_t number, FileView* file,
                                       const ReadParts& parts) const;
  // The media of `found`, which must be those indexed.
  absl::Status ReadMedia(Record* found, uint64_t number, const FileView& file,
                         const ReadParts& parts, RawSample* sample) const;
  // Errors: DATA_LOSS (the index is damaged).
  absl::StatusOr<IndexedKinds> GetKinds(uint64_t number) const;

  // The owners of the sample's images in other files and of its bytes in this.
  uint64_t SampleOwner(const IndexSampleRecord& record) const;
  uint64_t FileOwner(const IndexSampleRecord& record) const;

  const std::unique_ptr<const RecordParser> parser_;
  const std::shared_ptr<const IndexFile> index_;
  const bool in_store_;
  const OpenFiles files_;
};

// The reader of `source` over its index and data files, which are in the order
// of the index. Does not check that they belong together: OpenSource does.
// Errors: as MakeParser.
absl::StatusOr<std::unique_ptr<FileSource>> MakeFileSource(
    const v1::Source& source, absl::string_view directory,
    std::shared_ptr<const IndexFile> index, std::vector<SourceFile> files,
    std::shared_ptr<OpenFileCache> cache);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FILE_SOURCE_H_
