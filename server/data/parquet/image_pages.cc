#include "server/data/parquet/image_pages.h"

#include <arrow/array.h>
#include <arrow/buffer_builder.h>
#include <arrow/status.h>
#include <arrow/type.h>
#include <parquet/column_reader.h>
#include <parquet/level_conversion.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/parquet/arrow_values.h"
#include "server/sample/data_fault.h"

namespace ballast {

// Puts values and levels together.
class ImagePagesReader {
 public:
  ImagePagesReader(const parquet::ColumnDescriptor& column,
                   arrow::MemoryPool* pool)
      : most_defined_(column.max_definition_level()),
        of_item_(parquet::internal::LevelInfo::ComputeLevelInfo(&column)
                     .repeated_ancestor_def_level),
        is_list_(column.max_repetition_level() > 0),
        items_(pool),
        starts_(pool) {}

  arrow::Result<ImagePages> Read(parquet::ColumnReader& column,
                                 FoundValues* found) {
    auto& reader = static_cast<parquet::ByteArrayReader&>(column);
    // A batch is of one page.
    while (reader.HasNext()) {
      int64_t num_values = 0;
      const int64_t levels =
          reader.ReadBatch(kBatch, defined_, repeated_, values_, &num_values);
      ARROW_RETURN_NOT_OK(AddBatch(levels, num_values, *found));
    }
    ARROW_RETURN_NOT_OK(starts_.Append(static_cast<uint64_t>(items_.length())));
    ImagePages images;
    images.is_list_ = is_list_;
    images.pages_ = std::move(found->kept);
    images.pieces_ = std::move(found->pieces);
    images.others_ = std::move(found->others);
    ARROW_ASSIGN_OR_RAISE(images.items_, items_.Finish());
    ARROW_ASSIGN_OR_RAISE(images.starts_, starts_.Finish());
    return images;
  }

 private:
  static constexpr int64_t kBatch = 256;

  arrow::Status AddBatch(int64_t levels, int64_t num_values,
                         const FoundValues& found) {
    int64_t used = 0;
    for (int64_t i = 0; i < levels; ++i) {
      if (!is_list_ || repeated_[i] == 0) {
        ARROW_RETURN_NOT_OK(
            starts_.Append(static_cast<uint64_t>(items_.length())));
      } else if (starts_.length() == 0) {
        return arrow::Status::Invalid("a chunk begins within a row");
      }
      const int16_t defined = most_defined_ == 0 ? 0 : defined_[i];
      if (is_list_ && defined < of_item_) continue;  // null, or no items
      FoundValue item;
      if (defined == most_defined_) {
        if (used == num_values) {
          return arrow::Status::Invalid("a page has too few values");
        }
        ARROW_ASSIGN_OR_RAISE(item, GetValue(values_[used++], found));
      }
      ARROW_RETURN_NOT_OK(items_.Append(item));
    }
    return arrow::Status::OK();
  }

  static arrow::Result<FoundValue> GetValue(const parquet::ByteArray& value,
                                            const FoundValues& found) {
    if (!found.has_numbers) {
      return FoundValue{reinterpret_cast<const char*>(value.ptr), value.len};
    }
    uint32_t number = 0;
    if (value.len == sizeof(number)) {
      std::memcpy(&number, value.ptr, sizeof(number));
      if (number < found.numbered.length()) {
        return found.numbered.data()[number];
      }
    }
    return arrow::Status::Invalid("a value has no number");
  }

  const int16_t most_defined_;
  const int16_t of_item_;  // the level from which on a list has an item
  const bool is_list_;
  arrow::TypedBufferBuilder<FoundValue> items_;
  arrow::TypedBufferBuilder<uint64_t> starts_;
  int16_t defined_[kBatch];
  int16_t repeated_[kBatch];
  parquet::ByteArray values_[kBatch];
};

namespace {

// Errors: as ReadImagePages.
arrow::Result<std::optional<ImagePages>> ReadAll(
    std::unique_ptr<parquet::PageReader> pages, const ImageChunk& chunk,
    arrow::MemoryPool* pool, FoundValues* found) {
  const auto reader =
      parquet::ColumnReader::Make(&chunk.column, std::move(pages), pool);
  ARROW_ASSIGN_OR_RAISE(
      ImagePages images,
      ImagePagesReader(chunk.column, pool).Read(*reader, found));
  if (found->is_other) return std::nullopt;
  return images;
}

}  // namespace

ParquetImage ImagePages::GetImage(const FoundValue& item) const {
  ParquetImage image;
  image.size = item.size;
  if (item.num_pieces == 0) {
    image.bytes = absl::string_view(item.bytes, item.size);
  } else {
    image.pieces =
        absl::MakeConstSpan(pieces_).subspan(item.first_piece, item.num_pieces);
    image.others = others_;
  }
  return image;
}

bool MayHaveImagePages(const parquet::FileMetaData& file,
                       const parquet::ColumnChunkMetaData& chunk,
                       const parquet::ColumnDescriptor& column) {
  return column.physical_type() == parquet::Type::BYTE_ARRAY &&
         column.max_repetition_level() <= 1 &&
         chunk.crypto_metadata() == nullptr &&
         !file.writer_version().VersionLt(
             parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION());
}

arrow::Result<std::optional<ImagePages>> ReadImagePages(
    std::shared_ptr<ArrowFile> file, const ImageChunk& chunk,
    arrow::MemoryPool* pool) {
  FoundValues found(pool);
  return ReadAll(KeepPages(std::move(file), chunk, pool, &found), chunk, pool,
                 &found);
}

arrow::Result<std::optional<ImagePages>> PlaceImages(const FileView& file,
                                                     const ImageChunk& chunk,
                                                     arrow::MemoryPool* pool,
                                                     absl::Status* error) {
  FoundValues found(pool);
  return ReadAll(PlacePages(file, chunk, pool, error, &found), chunk, pool,
                 &found);
}

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
