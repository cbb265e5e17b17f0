#ifndef BALLAST_SERVER_CORPUS_PARQUET_PARQUET_IMAGE_H_
#define BALLAST_SERVER_CORPUS_PARQUET_PARQUET_IMAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/file.h"

namespace ballast {

// The file of an image in a row: in memory, or in pieces of the Parquet file,
// which follow each other. A view.
struct ParquetImage {
  uint64_t size = 0;
  absl::string_view bytes;  // unless it has pieces
  absl::Span<const FilePiece> pieces;
  absl::string_view others;  // of pieces that are not in the file
};

// Adds an image to those of a sample. Errors: INVALID_ARGUMENT (over kMaxImages
// or kMaxSampleBytes).
absl::Status AppendImage(const ParquetImage& image,
                         std::vector<ParquetImage>* images);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_PARQUET_IMAGE_H_
