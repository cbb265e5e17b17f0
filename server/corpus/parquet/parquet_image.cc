#include "server/corpus/parquet/parquet_image.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/limits.h"

namespace ballast {

absl::Status ReadPieces(const FileView& file,
                        absl::Span<const FilePiece> pieces,
                        absl::string_view others, char* out) {
  for (const FilePiece& piece : pieces) {
    if (piece.in_file) {
      BALLAST_RETURN_IF_ERROR(file.ReadAt(piece.offset, piece.size, out));
    } else {
      std::memcpy(out, others.data() + piece.offset, piece.size);
    }
    out += piece.size;
  }
  return absl::OkStatus();
}

absl::Status AppendImage(const ParquetImage& image,
                         std::vector<ParquetImage>* images) {
  if (images->size() == kMaxImages) {
    return DataFaultError(absl::StrCat("over ", kMaxImages, " images"));
  }
  uint64_t all = image.size;
  for (const ParquetImage& other : *images) all += other.size;
  if (all > kMaxSampleBytes) {
    return DataFaultError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  images->push_back(image);
  return absl::OkStatus();
}

}  // namespace ballast
