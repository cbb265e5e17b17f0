#ifndef BALLAST_SERVER_DATA_PARQUET_PARQUET_PARSER_H_
#define BALLAST_SERVER_DATA_PARQUET_PARQUET_PARSER_H_

#include <cstdint>
#include <memory>

#include "server/data/index/index_file.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/record_parser.h"

namespace ballast {

// As kParquetFormat.make, with a cache: a sample is read with its whole row
// group, which `row_groups` keeps for the samples that follow.
std::unique_ptr<RecordParser> MakeParquetParser(
    ParquetColumns columns, MediaRoot media,
    std::shared_ptr<RowGroupCache> row_groups);

// The memory that `groups` row groups of average size take, guessed from the
// sizes of the files: images hardly shrink when they are compressed.
uint64_t EstimateBytesOfGroups(const IndexFile& index, uint64_t groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_PARQUET_PARSER_H_
