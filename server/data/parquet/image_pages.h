#ifndef BALLAST_SERVER_DATA_PARQUET_IMAGE_PAGES_H_
#define BALLAST_SERVER_DATA_PARQUET_IMAGE_PAGES_H_

#include <arrow/buffer.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/type_fwd.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/data/parquet/arrow_file.h"
#include "server/data/parquet/found_pages.h"
#include "server/data/parquet/page_body.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/object_store.h"

namespace ballast {

// The images of a row group in place: in pages, which it keeps, or in the file.
// Nothing is copied out of a page. Immutable.
class ImagePages {
 public:
  // What a row has: its items if the column is a list, else one item. An item
  // without bytes is null.
  absl::Span<const FoundValue> Items(uint64_t row) const {
    const uint64_t* const starts = starts_->data_as<uint64_t>();
    return absl::MakeConstSpan(items_->data_as<FoundValue>(),
                               items_->size() / sizeof(FoundValue))
        .subspan(starts[row], starts[row + 1] - starts[row]);
  }
  // An item that is not null.
  ParquetImage GetImage(const FoundValue& item) const;

  uint64_t num_rows() const { return starts_->size() / sizeof(uint64_t) - 1; }
  bool is_list() const { return is_list_; }
  // Whether some images have pieces of the file.
  bool InFile() const { return !pieces_.empty(); }
  // The memory that it takes outside of the pool.
  uint64_t bytes() const {
    return pieces_.capacity() * sizeof(FilePiece) + others_.capacity();
  }

 private:
  friend class ImagePagesReader;

  bool is_list_ = false;
  std::vector<std::shared_ptr<arrow::Buffer>> pages_;
  std::vector<FilePiece> pieces_;
  std::string others_;
  std::shared_ptr<arrow::Buffer> items_;
  // For each row its first item, then their number.
  std::shared_ptr<arrow::Buffer> starts_;
};

// Whether the column chunk may be read by pages: images are bytes, or a list of
// them, and not encrypted. Of old writers the chunk's size may be wrong.
bool MayHaveImagePages(const parquet::FileMetaData& file,
                       const parquet::ColumnChunkMetaData& chunk,
                       const parquet::ColumnDescriptor& column);

// Reads the chunk page by page. Takes from `pool` the memory of its pages, not
// compressed, of some 24 bytes an item and 8 a row, and while it reads of one
// compressed page. nullopt: a page is of another encoding than PLAIN and
// dictionaries of PLAIN values. Errors: as Arrow's reader; may throw as Arrow
// does.
arrow::Result<std::optional<ImagePages>> ReadImagePages(
    std::shared_ptr<ArrowFile> file, const ImageChunk& chunk,
    arrow::MemoryPool* pool);

// Finds the places of the images in the file, without reading them: headers of
// pages, levels, the length of each image, and the marks of Snappy. nullopt: a
// page has another encoding, a codec that does not leave images as they are, or
// a checksum, which is only known to be right if all is read; or its images are
// small. The first error of a read goes to `error`. May throw as Arrow does.
arrow::Result<std::optional<ImagePages>> PlaceImages(const FileView& file,
                                                     const ImageChunk& chunk,
                                                     arrow::MemoryPool* pool,
                                                     absl::Status* error);

// The images of the rows of a group. Immutable; thread-safe.
class RowImages {
 public:
  // `column` is null if there are no images, or nothing is in it besides the
  // bytes that `pages` has, which FitPages it.
  RowImages(std::shared_ptr<arrow::Array> column,
            std::optional<ImagePages> pages)
      : column_(std::move(column)), pages_(std::move(pages)) {}

  // Whether a column and the pages of its bytes have the same items, and none
  // that is only a path. Otherwise both have to be decoded as one.
  static bool FitPages(const arrow::Array& column, const ImagePages& pages);

  // Adds the images of a row: they live as long as column and pages. With
  // `places` an item of a list may be null: it gets whether each is there.
  // Errors: INVALID_ARGUMENT (an image without bytes; as AppendImage), naming
  // the image, counted from 1.
  absl::Status Add(uint64_t row, std::vector<ParquetImage>* images,
                   std::vector<bool>* places = nullptr) const;

  // Whether some images have pieces of the file.
  bool InFile() const { return pages_.has_value() && pages_->InFile(); }

  // The path next to the bytes of image `number` of the row, counted from 0.
  std::optional<absl::string_view> PathAt(uint64_t row, uint64_t number) const;

 private:
  absl::Status AddItem(uint64_t row, uint64_t number,
                       const std::optional<ParquetImage>& image, bool may_lack,
                       std::vector<ParquetImage>* images) const;

  const std::shared_ptr<arrow::Array> column_;
  const std::optional<ImagePages> pages_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_IMAGE_PAGES_H_
