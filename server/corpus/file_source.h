#ifndef BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
#define BALLAST_SERVER_CORPUS_FILE_SOURCE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/config/path_pattern.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/open_file_cache.h"
#include "server/corpus/record_parser.h"
#include "server/corpus/sample_source.h"
#include "server/corpus/source_files.h"

namespace ballast {

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
  absl::Status ReadMedia(const Record& found, uint64_t number,
                         const FileView& file, const ReadParts& parts,
                         RawSample* sample) const;
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

#endif  // BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
