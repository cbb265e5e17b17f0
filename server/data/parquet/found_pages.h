#ifndef BALLAST_SERVER_DATA_PARQUET_FOUND_PAGES_H_
#define BALLAST_SERVER_DATA_PARQUET_FOUND_PAGES_H_

#include <arrow/buffer.h>
#include <arrow/buffer_builder.h>
#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <arrow/util/endian.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/data/parquet/arrow_file.h"
#include "server/data/parquet/page_body.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/object_store.h"

namespace ballast {

// A column chunk of images.
struct ImageChunk {
  const parquet::FileMetaData& file;
  const parquet::ColumnChunkMetaData& chunk;
  const parquet::ColumnDescriptor& column;
  ByteRange range;
};

// A value of a column in place: in memory, or in pieces of a file. Null if it
// has neither.
struct FoundValue {
  const char* bytes = nullptr;
  uint64_t size = 0;
  uint64_t first_piece = 0;
  uint64_t num_pieces = 0;

  bool is_null() const { return bytes == nullptr && num_pieces == 0; }
};

// What a reader of pages has found. Arrow's decoders copy values, of
// dictionaries at least: in place of values it hands them pages whose values
// are numbers, each four bytes long.
struct FoundValues {
  explicit FoundValues(arrow::MemoryPool* pool) : numbered(pool) {}

  // By number.
  arrow::TypedBufferBuilder<FoundValue> numbered;
  // Of `numbered` in files: the pieces, and bytes that are not in the file.
  std::vector<FilePiece> pieces;
  std::string others;
  // Pages into which values point.
  std::vector<std::shared_ptr<arrow::Buffer>> kept;
  // The last page's values are numbers.
  bool has_numbers = false;
  // A page was met that this cannot read; it was not handed out.
  bool is_other = false;

  // Adds a value, and its number to the values of a PLAIN page.
  arrow::Status AddNumbered(const FoundValue& value,
                            arrow::BufferBuilder* page) {
    const uint32_t plain[2] = {
        arrow::bit_util::ToLittleEndian(uint32_t{sizeof(uint32_t)}),
        static_cast<uint32_t>(numbered.length())};
    ARROW_RETURN_NOT_OK(page->Append(plain, sizeof(plain)));
    return numbered.Append(value);
  }
};

// The pages of a chunk with numbers in place of values, whose places are found
// in the file; values are not read. Hands out no page that PlaceImages cannot
// read. The first error of a read goes to `error`, which ends the pages. Owns
// none of its arguments.
std::unique_ptr<parquet::PageReader> PlacePages(const FileView& file,
                                                const ImageChunk& chunk,
                                                arrow::MemoryPool* pool,
                                                absl::Status* error,
                                                FoundValues* found);

// The pages of a chunk, of which those with values stay in memory. Their
// values and a dictionary's are views of them. `found` is not owned.
std::unique_ptr<parquet::PageReader> KeepPages(std::shared_ptr<ArrowFile> file,
                                               const ImageChunk& chunk,
                                               arrow::MemoryPool* pool,
                                               FoundValues* found);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_FOUND_PAGES_H_
