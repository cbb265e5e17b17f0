#ifndef BALLAST_SERVER_CORPUS_PARQUET_FOUND_VALUES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_FOUND_VALUES_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/buffer_builder.h>
#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <arrow/util/endian.h>

#include "server/corpus/parquet/parquet_image.h"

namespace ballast {

// A value of a column where it lies: in memory, or in pieces of a file. Null if
// it has neither.
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
  // Pages whose values are views of them.
  std::vector<std::shared_ptr<arrow::Buffer>> kept;
  // The last page's values are numbers.
  bool has_numbers = false;
  // A page cannot be read this way; it was not handed out.
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

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_FOUND_VALUES_H_
