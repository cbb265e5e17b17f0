#ifndef BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
#define BALLAST_SERVER_CORPUS_FILE_SOURCE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/open_file_cache.h"
#include "server/corpus/open_files.h"
#include "server/corpus/sample_source.h"
#include "server/corpus/source_files.h"

namespace ballast {

// Base of sources whose samples are in files: holds the index and the open
// files, and checks what was read against the index. Thread-safe.
class FileSource : public SampleSource {
 public:
  FileSource(std::shared_ptr<const IndexFile> index,
             std::vector<SourceFile> files,
             std::shared_ptr<OpenFileCache> cache)
      : index_(std::move(index)), files_(std::move(files), std::move(cache)) {}

  const SourceIndex& index() const final { return *index_; }
  const IndexFile& index_file() const { return *index_; }

  // Returns a data fault if the bytes are not those indexed. A file whose time
  // changed but whose text is the same is still read; its images are
  // UNAVAILABLE, since only their headers can be compared.
  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                          ReadParts parts) const final;
  SampleLocation Locate(uint64_t ordinal) const final;

  // Reads any record of the index, including those left out. `number` must be
  // below its num_records().
  absl::StatusOr<FaultOr<RawSample>> ReadNumber(uint64_t number,
                                                ReadParts parts) const;

 private:
  // Reads the parts of `record` from `file`. Data faults are returned as
  // statuses that DataFaultOf recognises.
  virtual absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                               FileView file,
                                               absl::string_view file_name,
                                               ReadParts parts) const = 0;

  // Returns whether the images are in the data file itself.
  virtual bool HoldsImages() const = 0;

  const std::shared_ptr<const IndexFile> index_;
  const OpenFiles files_;
};

// Samples in tar files. Reads headers, the text, and images if requested.
class WebDatasetSource final : public FileSource {
 public:
  using FileSource::FileSource;

 private:
  absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                       FileView file,
                                       absl::string_view file_name,
                                       ReadParts parts) const override;
  bool HoldsImages() const override { return true; }
};

// Samples in lines. Reads the line, and images if requested.
class JsonlSource final : public FileSource {
 public:
  JsonlSource(std::shared_ptr<const IndexFile> index,
              std::vector<SourceFile> files,
              std::shared_ptr<OpenFileCache> cache, MediaRoot media)
      : FileSource(std::move(index), std::move(files), std::move(cache)),
        media_(std::move(media)) {}

 private:
  absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                       FileView file,
                                       absl::string_view file_name,
                                       ReadParts parts) const override;
  bool HoldsImages() const override { return false; }

  const MediaRoot media_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
