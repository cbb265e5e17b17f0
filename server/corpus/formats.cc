#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/energon/energon_parser.h"
#include "server/corpus/jsonl/jsonl_parser.h"
#include "server/corpus/parquet/parquet_parser.h"
#include "server/corpus/record_parser.h"
#include "server/corpus/tar/webdataset_parser.h"

namespace ballast {
namespace {

// All formats with files. A new one adds a line here.
constexpr const RecordFormat* kFormats[] = {
    &kWebDatasetFormat,
    &kJsonlFormat,
    &kParquetFormat,
    &kEnergonFormat,
};

}  // namespace

absl::StatusOr<const RecordFormat*> FindFormat(const v1::Source& source) {
  for (const RecordFormat* format : kFormats) {
    if (format->format != source.format()) continue;
    if (format->check != nullptr) {
      BALLAST_RETURN_IF_ERROR(
          Annotate(format->check(), absl::StrCat("source ", source.name())));
    }
    return format;
  }
  return absl::UnimplementedError(absl::StrCat(
      "source ", source.name(),
      ": only webdataset, jsonl, parquet and energon sources have files to "
      "read"));
}

}  // namespace ballast
