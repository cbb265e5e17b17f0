#ifndef BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
#define BALLAST_SERVER_CORPUS_FILE_SOURCE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/path_pattern.h"
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
      : index_(std::move(index)),
        in_store_(!files.empty() && IsStoreUrl(files[0].path)),
        files_(std::move(files), std::move(cache)) {}

  const SourceIndex& index() const final { return *index_; }
  const IndexFile& index_file() const { return *index_; }

  // Returns a data fault if the bytes are not those indexed although the file
  // is the version that was indexed, from the read's begin to its end. If it is
  // another one, or changes meanwhile, the result is UNAVAILABLE; only a text
  // that is the same, which its hash shows, is still read.
  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                          ReadParts parts) const final;
  SampleLocation Locate(uint64_t ordinal) const final;
  absl::StatusOr<uint64_t> FetchAhead(uint64_t ordinal,
                                      const MakeRoom& make_room) const final;
  bool IsHere(uint64_t ordinal) const final;
  void AddOwners(uint64_t ordinal, std::vector<uint64_t>* owners) const final;
  bool InStore() const override;

  // Reads any record of the index, including those left out. `number` must be
  // below its num_records().
  absl::StatusOr<FaultOr<RawSample>> ReadNumber(uint64_t number,
                                                ReadParts parts) const;

 protected:
  // The owners of the sample's images in other files and of its bytes in this.
  uint64_t SampleOwner(const IndexSampleRecord& record) const;
  uint64_t FileOwner(const IndexSampleRecord& record) const;

 private:
  // Reads the parts of `record` from `file`. `lists`: the index has a video of
  // it that is a list of pictures. Data faults are returned as
  // DataFaultError does.
  virtual absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                               FileView file,
                                               absl::string_view file_name,
                                               ReadParts parts,
                                               bool lists) const = 0;

  // Whether a video of the record is a list of pictures. Errors: DATA_LOSS (the
  // index is damaged).
  absl::StatusOr<bool> HasList(uint64_t number) const;

  // Loads the record's ranges of an object into `view`, then ReadRecord.
  absl::StatusOr<RawSample> LoadAndRead(const IndexSampleRecord& record,
                                        absl::string_view file_name,
                                        ReadParts parts, bool lists,
                                        FileView* view) const;

  // Returns whether the images are in the data file itself.
  virtual bool HoldsImages() const = 0;

  // The ranges of an object that ReadRecord reads; `images`: also of images.
  // Errors: as ReadRecord.
  virtual absl::StatusOr<std::vector<ByteRange>> RangesOf(
      const IndexSampleRecord& record, FileView file, bool images) const;
  // Fetches what ReadRecord reads in other files; returns the bytes.
  virtual absl::StatusOr<uint64_t> FetchMore(
      const IndexSampleRecord& /*record*/, FileView /*file*/,
      const MakeRoom&) const {
    return 0;
  }
  // Whether FetchMore would find all of it here.
  virtual bool IsMoreHere(const IndexSampleRecord& /*record*/,
                          FileView /*file*/) const {
    return true;
  }

  const std::shared_ptr<const IndexFile> index_;
  const bool in_store_;
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
                                       ReadParts parts,
                                       bool lists) const override;
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
                                       ReadParts parts,
                                       bool lists) const override;
  bool HoldsImages() const override { return false; }
  absl::StatusOr<uint64_t> FetchMore(const IndexSampleRecord& record,
                                     FileView file,
                                     const MakeRoom& make_room) const override;
  bool IsMoreHere(const IndexSampleRecord& record,
                  FileView file) const override;
  // The media files that a record names; none if its line cannot be read or
  // understood, of which Read says what is wrong. Errors: as FileView::ReadAt.
  absl::StatusOr<std::vector<std::string>> MediaOf(
      const IndexSampleRecord& record, FileView file) const;
  bool InStore() const override {
    return FileSource::InStore() || media_.InStore();
  }

  const MediaRoot media_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_FILE_SOURCE_H_
