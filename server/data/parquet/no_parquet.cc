// Takes the place of Arrow where it is not built in.
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/data/parquet/unpack.h"

namespace ballast {

absl::Status CheckParquetIsBuiltIn() {
  return absl::UnimplementedError(
      "this build does not know Parquet; run deploy/setup.sh, which unpacks "
      "Arrow, and build again without --config=noarrow");
}

absl::StatusOr<std::shared_ptr<const ParquetFile>> OpenParquetFile(
    FileView /*file*/, const ParquetColumns& /*columns*/) {
  return CheckParquetIsBuiltIn();
}

absl::StatusOr<std::unique_ptr<ParquetWriter>> ParquetWriter::Create(
    const std::string& /*path*/, bool /*checksums*/) {
  return CheckParquetIsBuiltIn();
}

absl::StatusOr<std::unique_ptr<PlanTable>> PlanTable::Open(
    const std::string& /*path*/) {
  return CheckParquetIsBuiltIn();
}

absl::StatusOr<std::unique_ptr<PlanTableWriter>> PlanTableWriter::Create(
    const std::string& /*path*/, bool /*with_keys*/) {
  return CheckParquetIsBuiltIn();
}

bool IsPacked(absl::string_view /*name*/) { return false; }

absl::Status Unpack(const File& /*file*/, absl::string_view /*name*/,
                    TakeUnpacked /*take*/) {
  return CheckParquetIsBuiltIn();
}

}  // namespace ballast
