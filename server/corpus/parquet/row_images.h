#ifndef BALLAST_SERVER_CORPUS_PARQUET_ROW_IMAGES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_ROW_IMAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <arrow/type_fwd.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/corpus/parquet/image_pages.h"
#include "server/corpus/parquet/page_body.h"

namespace ballast {

// The images of the rows of a group. Immutable; thread-safe.
class RowImages {
 public:
  // `column` is null if there are no images, or nothing is in it beside the
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

  // The path beside the bytes of image `number` of the row, counted from 0.
  std::optional<absl::string_view> PathAt(uint64_t row, uint64_t number) const;

 private:
  absl::Status AddItem(uint64_t row, uint64_t number,
                       const std::optional<ParquetImage>& image, bool may_lack,
                       std::vector<ParquetImage>* images) const;

  const std::shared_ptr<arrow::Array> column_;
  const std::optional<ImagePages> pages_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_ROW_IMAGES_H_
