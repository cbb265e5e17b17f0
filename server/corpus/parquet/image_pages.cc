#include "server/corpus/parquet/image_pages.h"

#include <cstring>

#include <arrow/buffer_builder.h>
#include <arrow/status.h>
#include <parquet/column_reader.h>
#include <parquet/level_conversion.h>

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

}  // namespace ballast
