#ifndef BALLAST_SERVER_DATA_PARQUET_ARROW_STREAM_FILE_H_
#define BALLAST_SERVER_DATA_PARQUET_ARROW_STREAM_FILE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/data/parquet/parquet_file.h"

namespace ballast {

// Whether the file is one of Arrow's, as `datasets` writes with save_to_disk
// and into its cache: a stream of record batches, or a file of them
// (Feather 2). Errors: as FileView::ReadAt.
absl::StatusOr<bool> IsArrowFile(FileView file);

// The file as Parquet's are: a record batch is a row group. Its messages are
// walked, without their bodies. Errors: as OpenParquetFile; UNIMPLEMENTED
// (dictionaries).
absl::StatusOr<std::shared_ptr<const ParquetFile>> OpenArrowFile(
    FileView file, const ParquetColumns& columns);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_ARROW_STREAM_FILE_H_
