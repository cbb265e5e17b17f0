#ifndef BALLAST_SERVER_CORPUS_PARQUET_ROW_MAPPING_H_
#define BALLAST_SERVER_CORPUS_PARQUET_ROW_MAPPING_H_

#include <memory>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>

#include "absl/status/statusor.h"
#include "server/corpus/parquet/parquet_columns.h"
#include "server/corpus/parquet/parquet_file.h"

namespace ballast {

// The columns of one schema that make a sample; all exist and have fitting
// types.
struct RowMapping {
  std::string images;  // empty: none
  std::string turns;
  TurnShape shape = TurnShape::kConversations;
  std::vector<RowFilter> filters;
};

// Finds the columns. Pure. Errors: FAILED_PRECONDITION, as OpenParquetFile.
absl::StatusOr<RowMapping> MapColumns(const arrow::Schema& schema,
                                      const ParquetColumns& columns);

// Names of the columns to read, each once.
std::vector<std::string> ColumnsToRead(const RowMapping& mapping);

// Whether a field of a struct inside column `column` is read; others are
// pruned.
bool IsRead(const RowMapping& mapping, const std::string& column,
            const std::string& field);

// The rows of `table`, which has the columns of `mapping`, each in one chunk.
// `bytes` is the memory that `owner` and table take; the result keeps both
// alive.
std::shared_ptr<const ParquetRows> MapRows(
    std::shared_ptr<const arrow::Table> table, RowMapping mapping,
    uint64_t first_row, uint64_t bytes, std::shared_ptr<const void> owner);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_ROW_MAPPING_H_
