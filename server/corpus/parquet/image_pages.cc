#include "server/corpus/parquet/image_pages.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <arrow/buffer_builder.h>
#include <arrow/io/interfaces.h>
#include <arrow/status.h>
#include <arrow/util/endian.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/level_conversion.h>
#include <parquet/properties.h>

namespace ballast {
namespace {

using ::parquet::Encoding;

bool IsPlain(Encoding::type encoding) { return encoding == Encoding::PLAIN; }

bool IsDictionary(Encoding::type encoding) {
  return encoding == Encoding::RLE_DICTIONARY ||
         encoding == Encoding::PLAIN_DICTIONARY;
}

// A column chunk as pages are read from it. Bodies of pages that are not
// compressed are what ImagePages keeps; of others one is in memory at a time.
class ChunkStream final : public arrow::io::InputStream {
 public:
  ChunkStream(std::shared_ptr<ArrowFile> file, ByteRange range, bool keeps,
              arrow::MemoryPool* pool)
      : file_(std::move(file)), range_(range), keeps_(keeps), pool_(pool) {}

  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override {
    return static_cast<int64_t>(position_);
  }
  arrow::Result<std::string_view> Peek(int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(const auto bytes, Get(Here(size), &peeked_));
    return std::string_view(*bytes);
  }
  arrow::Result<int64_t> Read(int64_t, void*) override {
    return arrow::Status::NotImplemented("pages are read as buffers");
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override {
    std::shared_ptr<arrow::ResizableBuffer> own;
    ARROW_ASSIGN_OR_RAISE(auto bytes,
                          Get(Here(size), keeps_ ? &own : &scratch_));
    position_ += static_cast<uint64_t>(bytes->size());
    return bytes;
  }

  // Leaves `body` to the caller, if it is what Read returned last.
  void GiveAway(const arrow::Buffer& body) {
    if (scratch_ != nullptr && scratch_->data() == body.data()) {
      scratch_ = nullptr;
    }
  }

 private:
  int64_t Here(int64_t size) const {
    return std::clamp<int64_t>(size, 0,
                               static_cast<int64_t>(range_.size - position_));
  }
  // Reads `size` bytes into `buffer`, which it makes or widens.
  arrow::Result<std::shared_ptr<arrow::Buffer>> Get(
      int64_t size, std::shared_ptr<arrow::ResizableBuffer>* buffer) {
    if (*buffer == nullptr) {
      ARROW_ASSIGN_OR_RAISE(*buffer, arrow::AllocateResizableBuffer(0, pool_));
    }
    ARROW_RETURN_NOT_OK((*buffer)->Resize(size, /*shrink_to_fit=*/false));
    ARROW_ASSIGN_OR_RAISE(
        const int64_t read,
        file_->ReadAt(static_cast<int64_t>(range_.offset + position_), size,
                      (*buffer)->mutable_data()));
    if (read != size) return arrow::Status::Invalid("the file ends in a page");
    return std::shared_ptr<arrow::Buffer>(*buffer);
  }

  const std::shared_ptr<ArrowFile> file_;
  const ByteRange range_;
  const bool keeps_;
  arrow::MemoryPool* const pool_;
  uint64_t position_ = 0;
  std::shared_ptr<arrow::ResizableBuffer> peeked_;
  std::shared_ptr<arrow::ResizableBuffer> scratch_;
};

// What Pages found, which outlives it.
struct FoundPages {
  explicit FoundPages(arrow::MemoryPool* pool) : dictionary(pool) {}

  std::vector<std::shared_ptr<arrow::Buffer>> kept;
  arrow::TypedBufferBuilder<absl::string_view> dictionary;
  bool is_coded = false;  // the last page has indices of the dictionary
  bool is_other = false;  // a page has another encoding; it is not handed out
};

// The pages of a chunk. Keeps the memory of those with values. In place of the
// dictionary it hands out one whose values are their numbers, so that Arrow's
// decoder, which copies dictionaries, copies no images.
class Pages final : public parquet::PageReader {
 public:
  Pages(std::shared_ptr<ChunkStream> stream,
        const parquet::FileMetaData& metadata,
        const parquet::ColumnChunkMetaData& chunk,
        const parquet::ColumnDescriptor& column, arrow::MemoryPool* pool,
        FoundPages* found)
      : stream_(std::move(stream)),
        codec_(chunk.compression()),
        // Writers that compressed and said they had not.
        always_compressed_(metadata.writer_version().VersionLt(
            parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION())),
        column_(column),
        pool_(pool),
        left_(chunk.num_values()),
        found_(*found) {}

  void set_max_page_header_size(uint32_t) override {}

  std::shared_ptr<parquet::Page> NextPage() override {
    if (left_ <= 0) return nullptr;
    parquet::ReaderProperties properties(pool_);
    properties.set_page_checksum_verification(true);
    // A reader uses its memory for all its pages, so each page has its own.
    const auto reader = parquet::PageReader::Open(
        stream_, left_, codec_, properties, column_, always_compressed_);
    std::shared_ptr<parquet::Page> page = reader->NextPage();
    if (page == nullptr) return nullptr;
    if (page->type() == parquet::PageType::DICTIONARY_PAGE) {
      return Numbered(static_cast<const parquet::DictionaryPage&>(*page));
    }
    const auto& data = static_cast<const parquet::DataPage&>(*page);
    left_ -= data.num_values();
    found_.is_coded = IsDictionary(data.encoding());
    if (!found_.is_coded && !IsPlain(data.encoding())) {
      found_.is_other = true;
      return nullptr;
    }
    if (!found_.is_coded) Keep(*page);
    return page;
  }

 private:
  void Keep(const parquet::Page& page) {
    found_.kept.push_back(page.buffer());
    stream_->GiveAway(*page.buffer());
  }

  std::shared_ptr<parquet::Page> Numbered(const parquet::DictionaryPage& page) {
    if (page.encoding() != Encoding::PLAIN &&
        page.encoding() != Encoding::PLAIN_DICTIONARY) {
      found_.is_other = true;
      return nullptr;
    }
    Keep(page);
    const char* at = reinterpret_cast<const char*>(page.data());
    int64_t left = page.size();
    arrow::BufferBuilder numbers(pool_);
    for (int32_t i = 0; i < page.num_values(); ++i) {
      uint32_t length = 0;
      if (left < 4) throw parquet::ParquetException("dictionary ends early");
      std::memcpy(&length, at, sizeof(length));
      length = arrow::bit_util::FromLittleEndian(length);
      if (length > left - 4) {
        throw parquet::ParquetException("dictionary ends in a value");
      }
      PARQUET_THROW_NOT_OK(
          found_.dictionary.Append(absl::string_view(at + 4, length)));
      at += 4 + int64_t{length};
      left -= 4 + int64_t{length};
      const uint32_t value[2] = {
          arrow::bit_util::ToLittleEndian(uint32_t{sizeof(uint32_t)}),
          static_cast<uint32_t>(i)};
      PARQUET_THROW_NOT_OK(numbers.Append(value, sizeof(value)));
    }
    PARQUET_ASSIGN_OR_THROW(const auto buffer, numbers.Finish());
    return std::make_shared<parquet::DictionaryPage>(
        buffer, page.num_values(), Encoding::PLAIN, /*is_sorted=*/false);
  }

  const std::shared_ptr<ChunkStream> stream_;
  const parquet::Compression::type codec_;
  const bool always_compressed_;
  const parquet::ColumnDescriptor& column_;
  arrow::MemoryPool* const pool_;
  int64_t left_;
  FoundPages& found_;
};

}  // namespace

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
                                 FoundPages* found) {
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
    ARROW_ASSIGN_OR_RAISE(images.items_, items_.Finish());
    ARROW_ASSIGN_OR_RAISE(images.starts_, starts_.Finish());
    return images;
  }

 private:
  static constexpr int64_t kBatch = 256;

  arrow::Status AddBatch(int64_t levels, int64_t num_values,
                         const FoundPages& found) {
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
      absl::string_view item;
      if (defined == most_defined_) {
        if (used == num_values) {
          return arrow::Status::Invalid("a page has too few values");
        }
        ARROW_ASSIGN_OR_RAISE(item, ValueOf(values_[used++], found));
      }
      ARROW_RETURN_NOT_OK(items_.Append(item));
    }
    return arrow::Status::OK();
  }

  static arrow::Result<absl::string_view> ValueOf(
      const parquet::ByteArray& value, const FoundPages& found) {
    if (!found.is_coded) {
      return absl::string_view(reinterpret_cast<const char*>(value.ptr),
                               value.len);
    }
    uint32_t number = 0;
    if (value.len == sizeof(number)) {
      std::memcpy(&number, value.ptr, sizeof(number));
      if (number < found.dictionary.length()) {
        return found.dictionary.data()[number];
      }
    }
    return arrow::Status::Invalid("an index is outside of the dictionary");
  }

  const int16_t most_defined_;
  const int16_t of_item_;  // the level from which on a list has an item
  const bool is_list_;
  arrow::TypedBufferBuilder<absl::string_view> items_;
  arrow::TypedBufferBuilder<uint64_t> starts_;
  int16_t defined_[kBatch];
  int16_t repeated_[kBatch];
  parquet::ByteArray values_[kBatch];
};

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
    std::shared_ptr<ArrowFile> file, ByteRange range,
    const parquet::FileMetaData& metadata,
    const parquet::ColumnChunkMetaData& chunk,
    const parquet::ColumnDescriptor& column, arrow::MemoryPool* pool) {
  const bool keeps = chunk.compression() == parquet::Compression::UNCOMPRESSED;
  FoundPages found(pool);
  const auto reader = parquet::ColumnReader::Make(
      &column,
      std::make_unique<Pages>(
          std::make_shared<ChunkStream>(std::move(file), range, keeps, pool),
          metadata, chunk, column, pool, &found),
      pool);
  ARROW_ASSIGN_OR_RAISE(ImagePages images,
                        ImagePagesReader(column, pool).Read(*reader, &found));
  if (found.is_other) return std::nullopt;
  return images;
}

}  // namespace ballast
