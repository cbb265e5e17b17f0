#include "server/data/parquet/arrow_group.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/data/parquet/mapped_rows.h"
#include "server/data/parquet/whole_rows.h"

namespace ballast {

absl::Status DamagedTable(absl::string_view reason) {
  return AsDataFault(absl::DataLossError(
      absl::StrCat("damaged or not Parquet: ", Printable(reason))));
}

absl::Status FromArrow(const arrow::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The bound of GroupMemory, which follows from the bytes.
  const bool is_bound = absl::StrContains(status.message(), "cap exceeded");
  if (status.IsOutOfMemory() && !is_bound) {
    return absl::ResourceExhaustedError("no memory to decode Parquet");
  }
  if (status.IsOutOfMemory()) {
    return AsDataFault(absl::DataLossError(absl::StrCat(
        "its columns take more than ", kMaxRowGroupBytes,
        " bytes in memory; write the file with smaller row groups (pyarrow: "
        "row_group_size)")));
  }
  return DamagedTable(status.message());
}

absl::StatusOr<std::shared_ptr<const ParquetRows>> MapTable(
    const std::shared_ptr<arrow::Table>& table,
    std::optional<ImagePages> images, const RowMapping& mapping,
    const ParquetGroup& group, const std::shared_ptr<GroupMemory>& memory) {
  if (static_cast<uint64_t>(table->num_rows()) != group.num_rows) {
    return DamagedTable(absl::StrCat("a row group of ", group.num_rows,
                                     " rows holds ", table->num_rows()));
  }
  for (const std::string& name : ColumnsToRead(mapping)) {
    if (images.has_value() && name == mapping.images) continue;
    const auto column = table->GetColumnByName(name);
    if (column == nullptr || column->num_chunks() != 1) {
      return DamagedTable(absl::StrCat("no values of column ", name));
    }
  }
  const uint64_t bytes = memory->counted.bytes_allocated() +
                         (images.has_value() ? images->bytes() : 0);
  if (!mapping.whole.empty()) {
    return MapWholeRows(table, mapping, group.first_row, bytes, memory);
  }
  return MapRows(table, std::move(images), mapping, group.first_row, bytes,
                 memory);
}

}  // namespace ballast
