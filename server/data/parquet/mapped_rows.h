#ifndef BALLAST_SERVER_DATA_PARQUET_MAPPED_ROWS_H_
#define BALLAST_SERVER_DATA_PARQUET_MAPPED_ROWS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <arrow/type_fwd.h>

#include "server/data/parquet/image_pages.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/row_mapping.h"

namespace ballast {

// The filters of rows of a table, and their columns.
class TableFilters {
 public:
  TableFilters(const arrow::Table& table, std::vector<RowFilter> filters);
  bool Passes(int64_t row) const;

 private:
  std::vector<RowFilter> filters_;
  std::vector<std::shared_ptr<arrow::Array>> columns_;
};

// The rows of `table`, which has the columns of `mapping`, each in one chunk.
// With `images`, which has as many rows, the column of images has no bytes, or
// is not there. `bytes` is the memory that `owner` and table take; the result
// keeps both alive.
std::shared_ptr<const ParquetRows> MapRows(
    std::shared_ptr<const arrow::Table> table, std::optional<ImagePages> images,
    RowMapping mapping, uint64_t first_row, uint64_t bytes,
    std::shared_ptr<const void> owner);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_MAPPED_ROWS_H_
