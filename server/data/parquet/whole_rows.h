#ifndef BALLAST_SERVER_DATA_PARQUET_WHOLE_ROWS_H_
#define BALLAST_SERVER_DATA_PARQUET_WHOLE_ROWS_H_

#include <cstdint>
#include <memory>

#include <arrow/type_fwd.h>

#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/row_mapping.h"

namespace ballast {

// As MapRows, for a recipe: rows with the values of all columns of `table`,
// each in one chunk.
std::shared_ptr<const ParquetRows> MapWholeRows(
    std::shared_ptr<const arrow::Table> table, const RowMapping& mapping,
    uint64_t first_row, uint64_t bytes, std::shared_ptr<const void> owner);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_WHOLE_ROWS_H_
