#ifndef BALLAST_SERVER_DATA_PARQUET_PARQUET_TABLES_H_
#define BALLAST_SERVER_DATA_PARQUET_PARQUET_TABLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// Parquet files of fixed columns: plan files, and conversations that are
// generated.

namespace ballast {

// Rows of a plan file as columns of equal length (docs/plans.md).
struct PlanColumns {
  std::vector<int64_t> step;
  std::vector<int64_t> micro_batch;
  std::vector<int64_t> pack;  // -1: none
  // Numbers in `names`, in the order in which these occur.
  std::vector<uint32_t> source;
  std::vector<std::string> names;
  // One of them: the samples' numbers in the index, or their keys.
  std::vector<int64_t> sample;
  std::vector<std::string> key;
  // Which time the sample comes in its step, from 0. Empty: 0 in all rows.
  std::vector<int64_t> repeat;
  // Which pass through its source the sample belongs to. Empty: 0 in all rows.
  std::vector<int64_t> epoch;
  // IndexedSample.text_check when the row was written. Empty: 0 in all rows.
  std::vector<int64_t> check;

  uint64_t size() const { return step.size(); }
};

// A Parquet file with the columns step, micro_batch, pack, source and sample,
// and perhaps repeat, epoch and check. Immutable; thread-safe.
class PlanTable {
 public:
  // Most rows of a row group, which is read as a whole.
  static constexpr uint64_t kMaxGroupRows = uint64_t{1} << 24;

  // Reads the footer. Errors: UNAVAILABLE (the file cannot be read); DATA_LOSS
  // (not Parquet, damaged); FAILED_PRECONDITION (a column is missing or has
  // another type; a row group of more than kMaxGroupRows); UNIMPLEMENTED (this
  // build has no Parquet).
  static absl::StatusOr<std::unique_ptr<PlanTable>> Open(
      const std::string& path);

  virtual ~PlanTable() = default;

  // Rows of each row group.
  virtual absl::Span<const uint64_t> group_rows() const = 0;

  // Reads and decodes a row group. Blocks on the disk. Errors: DATA_LOSS
  // (damaged); INVALID_ARGUMENT (a value is null or no whole number), naming
  // the row, counted from 0 in the file; UNAVAILABLE (the file cannot be read);
  // RESOURCE_EXHAUSTED (no memory).
  virtual absl::StatusOr<PlanColumns> Read(size_t group) const = 0;
};

// Writes a plan file. Thread-compatible; blocks on the disk. The file is whole
// once Finish has returned OK.
class PlanTableWriter {
 public:
  // Creates `path`; samples have numbers, or keys if `with_keys`. Errors:
  // UNIMPLEMENTED (this build has no Parquet); UNAVAILABLE (the file cannot be
  // written).
  static absl::StatusOr<std::unique_ptr<PlanTableWriter>> Create(
      const std::string& path, bool with_keys = false);

  virtual ~PlanTableWriter() = default;

  // Writes `columns` as one row group. Errors: UNAVAILABLE.
  virtual absl::Status WriteGroup(const PlanColumns& columns) = 0;
  // Writes the footer; nothing follows. Errors: UNAVAILABLE.
  virtual absl::Status Finish() = 0;
};

// Writes a Parquet file of conversations as Hugging Face's datasets do: columns
// `images`, a list of {bytes, path}, and `conversations`, a list of {from,
// value}; pages are compressed with Snappy. Equal rows and libraries give equal
// bytes. Thread-compatible; blocks on the disk.
class ParquetWriter {
 public:
  struct Image {
    std::string path;  // a name to show
    absl::string_view bytes;
  };
  struct Row {
    std::vector<Image> images;
    std::vector<std::pair<std::string, std::string>> turns;  // from, value
  };

  // Creates `path`; pages have checksums if `checksums`. Errors: UNIMPLEMENTED
  // (this build has no Parquet); UNAVAILABLE (the file cannot be written).
  static absl::StatusOr<std::unique_ptr<ParquetWriter>> Create(
      const std::string& path, bool checksums = false);

  virtual ~ParquetWriter() = default;

  // Writes `rows` as one row group. Errors: UNAVAILABLE.
  virtual absl::Status WriteGroup(absl::Span<const Row> rows) = 0;
  // Writes the footer; nothing follows. Errors: UNAVAILABLE.
  virtual absl::Status Finish() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_PARQUET_TABLES_H_
