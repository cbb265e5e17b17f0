#include "server/corpus/parquet/row_images.h"

#include <arrow/array.h>
#include <arrow/type.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/data_path.h"
#include "server/corpus/parquet/arrow_values.h"

namespace ballast {
namespace {

std::optional<ParquetImage> ImageAt(const arrow::Array& array, int64_t i) {
  std::optional<absl::string_view> bytes;
  if (array.type_id() != arrow::Type::STRUCT) {
    bytes = BytesAt(array, i);
  } else if (!array.IsNull(i)) {
    bytes = BytesAt(*GetField(array, "bytes"), i);
  }
  if (!bytes.has_value()) return std::nullopt;
  return ParquetImage{bytes->size(), *bytes, {}, {}};
}

// The path of item `number` of a row, counted from 0.
std::optional<absl::string_view> GetPath(const arrow::Array& column,
                                         uint64_t row, uint64_t number) {
  const arrow::Array* values = &column;
  int64_t i = static_cast<int64_t>(row);
  std::optional<ListItems> items;
  if (ItemType(*column.type()) != nullptr) {
    items = ListAt(column, i);
    if (!items.has_value() ||
        number >= static_cast<uint64_t>(items->end - items->begin)) {
      return std::nullopt;
    }
    values = items->values.get();
    i = items->begin + static_cast<int64_t>(number);
  }
  if (values->type_id() != arrow::Type::STRUCT || values->IsNull(i)) {
    return std::nullopt;
  }
  const auto paths = GetField(*values, "path");
  if (paths == nullptr || !IsBytes(*paths->type())) return std::nullopt;
  return BytesAt(*paths, i);
}

}  // namespace

std::optional<absl::string_view> RowImages::PathAt(uint64_t row,
                                                   uint64_t number) const {
  return column_ == nullptr ? std::nullopt : GetPath(*column_, row, number);
}

bool RowImages::FitPages(const arrow::Array& column, const ImagePages& pages) {
  if (pages.num_rows() != static_cast<uint64_t>(column.length()) ||
      pages.is_list() != (ItemType(*column.type()) != nullptr)) {
    return false;
  }
  for (uint64_t row = 0; row < pages.num_rows(); ++row) {
    const auto items = pages.Items(row);
    if (pages.is_list()) {
      const auto others = ListAt(column, static_cast<int64_t>(row));
      const int64_t count =
          others.has_value() ? others->end - others->begin : 0;
      if (count != static_cast<int64_t>(items.size())) return false;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].is_null() && GetPath(column, row, i).has_value()) {
        return false;
      }
    }
  }
  return true;
}

absl::Status RowImages::AddItem(uint64_t row, uint64_t number,
                                const std::optional<ParquetImage>& image,
                                bool may_lack,
                                std::vector<ParquetImage>* images) const {
  if (image.has_value()) return AppendImage(*image, images);
  const auto path = PathAt(row, number);
  if (!path.has_value() && may_lack) return absl::OkStatus();
  return DataFaultError(
      path.has_value()
          ? absl::StrCat("image ", number + 1, " is only a path, ",
                         Printable(*path), ", which is not followed")
          : absl::StrCat("image ", number + 1, " is null"));
}

absl::Status RowImages::Add(uint64_t row, std::vector<ParquetImage>* images,
                            std::vector<bool>* places) const {
  const auto add = [&](uint64_t number,
                       const std::optional<ParquetImage>& image,
                       bool may_lack) {
    if (places != nullptr) places->push_back(image.has_value());
    return AddItem(row, number, image, may_lack || places != nullptr, images);
  };
  if (pages_.has_value()) {
    uint64_t number = 0;
    for (const FoundValue& item : pages_->Items(row)) {
      std::optional<ParquetImage> image;
      if (!item.is_null()) image = pages_->GetImage(item);
      BALLAST_RETURN_IF_ERROR(add(number++, image, !pages_->is_list()));
    }
    return absl::OkStatus();
  }
  if (column_ == nullptr) return absl::OkStatus();
  const int64_t i = static_cast<int64_t>(row);
  if (ItemType(*column_->type()) == nullptr) {
    // A sample without an image has a null, or a struct of nulls.
    return add(0, ImageAt(*column_, i), /*may_lack=*/true);
  }
  const auto items = ListAt(*column_, i);
  if (!items.has_value()) return absl::OkStatus();
  for (int64_t k = items->begin; k < items->end; ++k) {
    BALLAST_RETURN_IF_ERROR(add(static_cast<uint64_t>(k - items->begin),
                                ImageAt(*items->values, k),
                                /*may_lack=*/false));
  }
  return absl::OkStatus();
}

}  // namespace ballast
