#ifndef BALLAST_SERVER_CORPUS_PARQUET_IMAGE_PAGES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_IMAGE_PAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/parquet/arrow_file.h"
#include "server/storage/span.h"

namespace ballast {

// The images of a row group as views of the pages that hold them: nothing is
// copied out of a page. Immutable.
class ImagePages {
 public:
  // What a row has: its items if the column is a list, else one item. An item
  // without bytes is null: a view of nullptr.
  absl::Span<const absl::string_view> Items(uint64_t row) const {
    const uint64_t* const starts = starts_->data_as<uint64_t>();
    return absl::MakeConstSpan(items_->data_as<absl::string_view>(),
                               static_cast<size_t>(num_items()))
        .subspan(starts[row], starts[row + 1] - starts[row]);
  }
  uint64_t num_rows() const { return starts_->size() / sizeof(uint64_t) - 1; }
  bool is_list() const { return is_list_; }

 private:
  friend class ImagePagesReader;
  uint64_t num_items() const {
    return items_->size() / sizeof(absl::string_view);
  }

  bool is_list_ = false;
  std::vector<std::shared_ptr<arrow::Buffer>> pages_;
  std::shared_ptr<arrow::Buffer> items_;
  // For each row its first item, and their number behind them.
  std::shared_ptr<arrow::Buffer> starts_;
};

// Whether ReadImagePages may read the column chunk: images are bytes, or a list
// of them, and not encrypted. Of old writers the chunk's size may be wrong.
bool MayHaveImagePages(const parquet::FileMetaData& file,
                       const parquet::ColumnChunkMetaData& chunk,
                       const parquet::ColumnDescriptor& column);

// Reads the chunk page by page from `file`: the bytes of `range`. Takes from
// `pool` the memory of its pages, not compressed, of 16 bytes an item and 8 a
// row, and while it reads of one compressed page. nullopt: a page is of another
// encoding than PLAIN and dictionaries of PLAIN values. Errors: as Arrow's
// reader; may throw as Arrow does.
arrow::Result<std::optional<ImagePages>> ReadImagePages(
    std::shared_ptr<ArrowFile> file, ByteRange range,
    const parquet::FileMetaData& metadata,
    const parquet::ColumnChunkMetaData& chunk,
    const parquet::ColumnDescriptor& column, arrow::MemoryPool* pool);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_IMAGE_PAGES_H_
