#ifndef BALLAST_SERVER_DATA_PARQUET_ARROW_GROUP_H_
#define BALLAST_SERVER_DATA_PARQUET_ARROW_GROUP_H_

#include <exception>
#include <memory>
#include <new>
#include <optional>

#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <arrow/table.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/data/parquet/image_pages.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/row_mapping.h"
#include "server/sample/data_fault.h"

namespace ballast {

// Memory for decoding one row group, counted and bounded.
struct GroupMemory {
  arrow::ProxyMemoryPool counted{arrow::default_memory_pool()};
  arrow::CappedMemoryPool pool{&counted,
                               static_cast<int64_t>(kMaxRowGroupBytes)};
};

// A data fault of a file.
absl::Status DamagedTable(absl::string_view reason);

// `status` as ours.
absl::Status FromArrow(const arrow::Status& status);

// Runs `call`, which returns an arrow::Status, and turns exceptions of the
// library into errors. What `call` left in `error` comes first: it was the
// cause.
template <typename Call>
absl::Status GuardArrow(const absl::Status& error, Call call) {
  absl::Status status;
  try {
    status = FromArrow(call());
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("no memory to decode its columns");
  } catch (const std::exception& exception) {
    status = DamagedTable(exception.what());
  }
  return error.ok() ? status : error;
}

// The rows of a group, of which `table` has the columns, but those of `images`.
// The caller frees the table before the memory, if this fails. Errors: a data
// fault.
absl::StatusOr<std::shared_ptr<const ParquetRows>> MapTable(
    const std::shared_ptr<arrow::Table>& table,
    std::optional<ImagePages> images, const RowMapping& mapping,
    const ParquetGroup& group, const std::shared_ptr<GroupMemory>& memory);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_ARROW_GROUP_H_
