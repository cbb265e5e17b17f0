#ifndef BALLAST_SERVER_CORPUS_PARQUET_PARQUET_SOURCE_H_
#define BALLAST_SERVER_CORPUS_PARQUET_PARQUET_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file_source.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/parquet/parquet_columns.h"
#include "server/corpus/parquet/row_group_cache.h"

namespace ballast {

// Samples in rows of Parquet files. Reads the whole row group of a sample,
// which `row_groups` keeps for the samples that follow. Thread-safe.
class ParquetSource final : public FileSource {
 public:
  ParquetSource(std::shared_ptr<const IndexFile> index,
                std::vector<SourceFile> files,
                std::shared_ptr<OpenFileCache> cache, ParquetColumns columns,
                MediaRoot media, std::shared_ptr<RowGroupCache> row_groups)
      : FileSource(std::move(index), std::move(files), std::move(cache)),
        columns_(std::move(columns)),
        media_(std::move(media)),
        row_groups_(std::move(row_groups)) {}
  ~ParquetSource() override { row_groups_->DropSource(this); }

 private:
  absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                       FileView file,
                                       absl::string_view file_name,
                                       ReadParts parts,
                                       bool lists) const override;
  bool HoldsImages() const override { return true; }
  // Those of its row group, unless all that is wanted of that is in memory.
  absl::StatusOr<std::vector<ByteRange>> RangesOf(
      const IndexSampleRecord& record, FileView file,
      bool images) const override;

  absl::StatusOr<RawSample> ReadRow(const IndexSampleRecord& record,
                                    const ParquetRows& rows, FileView file,
                                    absl::string_view file_name,
                                    ReadParts parts) const;
  // The row group of a record in row_groups_.
  RowGroupCache::Key KeyOf(const IndexSampleRecord& record,
                           const FileView& file) const {
    return {this, record.file, record.offset, file.stamp().mtime_ns};
  }
  // Its rows, or null if they are not decoded.
  std::shared_ptr<const ParquetRows> FindRows(const IndexSampleRecord& record,
                                              const FileView& file) const {
    return std::static_pointer_cast<const ParquetRows>(
        row_groups_->Find(KeyOf(record, file)));
  }
  // The footer of a file, and the number of its row group at `offset`. From
  // memory: ABORTED if the footer is not decoded.
  struct GroupPlace {
    std::shared_ptr<const ParquetFile> file;
    size_t number = 0;
  };
  absl::StatusOr<GroupPlace> FindGroup(uint32_t file_number, uint64_t offset,
                                       FileView file) const;
  // The row group of the record, from row_groups_ or the file, with images that
  // can be read there, if they are wanted.
  absl::StatusOr<std::shared_ptr<const ParquetRows>> RowsAt(
      const IndexSampleRecord& record, FileView file, bool images) const;

  const ParquetColumns columns_;
  const MediaRoot media_;  // of videos that a row names by path
  const std::shared_ptr<RowGroupCache> row_groups_;
};

// The memory that `groups` row groups of average size take, guessed from the
// sizes of the files: images hardly shrink when they are compressed.
uint64_t EstimateBytesOfGroups(const IndexFile& index, uint64_t groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_PARQUET_SOURCE_H_
