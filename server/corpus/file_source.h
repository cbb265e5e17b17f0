#ifndef BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
#define BALLAST_SERVER_CORPUS_FILE_SOURCE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/open_files.h"
#include "server/corpus/sample_source.h"
#include "server/corpus/source_files.h"

namespace ballast {

// What the sources whose samples lie in files share: the index, the open files,
// and how a failure is told. Thread-safe.
class FileSource : public SampleSource {
 public:
  FileSource(std::shared_ptr<const IndexFile> index,
             std::vector<SourceFile> files)
      : index_(std::move(index)), files_(std::move(files)) {}

  const SourceIndex& index() const final { return *index_; }

  // DATA_LOSS also when the data file's size or time has changed since it was
  // indexed.
  absl::StatusOr<RawSample> Read(uint64_t ordinal, ReadParts parts) const final;
  SampleLocation Locate(uint64_t ordinal) const final;

  // Read, of any record of the index: those left out too. `number` must be
  // below its num_records().
  absl::StatusOr<RawSample> ReadNumber(uint64_t number, ReadParts parts) const;

 private:
  // Reads what `record` says from `file`. A fault of the data, whatever its
  // code, becomes DATA_LOSS, with file, place and sample before it.
  virtual absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                               FileView file,
                                               absl::string_view file_name,
                                               ReadParts parts) const = 0;

  const std::shared_ptr<const IndexFile> index_;
  const OpenFiles files_;
};

// Samples in tar files. Without images, only headers and the text are read.
class WebDatasetSource final : public FileSource {
 public:
  using FileSource::FileSource;

 private:
  absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                       FileView file,
                                       absl::string_view file_name,
                                       ReadParts parts) const override;
};

// Samples in lines. Without images, only the line is read.
class JsonlSource final : public FileSource {
 public:
  JsonlSource(std::shared_ptr<const IndexFile> index,
              std::vector<SourceFile> files, MediaRoot media)
      : FileSource(std::move(index), std::move(files)),
        media_(std::move(media)) {}

 private:
  absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                       FileView file,
                                       absl::string_view file_name,
                                       ReadParts parts) const override;

  const MediaRoot media_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
