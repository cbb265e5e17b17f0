#include "server/data/parquet/image_heads.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/properties.h>

#include "common/status_macros.h"

namespace ballast {
namespace {

using ::parquet::Encoding;

// A column chunk as pages are read from it: reads what is looked at before it
// is taken, the pages' headers, and takes bodies without reading them.
class PartialPageStream final : public arrow::io::InputStream {
 public:
  PartialPageStream(PartialBytes* partial, arrow::MemoryPool* pool,
                    absl::Status* error)
      : partial_(partial),
        pool_(pool),
        error_(error),
        position_(partial->range().offset) {}

  // In the file.
  uint64_t position() const { return position_; }

  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override {
    return static_cast<int64_t>(position_ - partial_->range().offset);
  }
  arrow::Result<std::string_view> Peek(int64_t size) override {
    peeked_.resize(Here(size));
    const absl::Status read =
        partial_->Read(position_, peeked_.size(), peeked_.data());
    if (!read.ok()) {
      *error_ = read;
      return arrow::Status::IOError(std::string(read.message()));
    }
    return std::string_view(peeked_);
  }
  arrow::Result<int64_t> Read(int64_t, void*) override {
    return arrow::Status::NotImplemented("bodies of pages are not read");
  }
  // The bytes are not initialised: no page's body is looked at.
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override {
    size = static_cast<int64_t>(Here(size));
    ARROW_ASSIGN_OR_RAISE(std::unique_ptr<arrow::Buffer> body,
                          arrow::AllocateBuffer(size, pool_));
    position_ += static_cast<uint64_t>(size);
    return std::shared_ptr<arrow::Buffer>(std::move(body));
  }

 private:
  uint64_t Here(int64_t size) const {
    const uint64_t left = partial_->range().end() - position_;
    return std::min(left, static_cast<uint64_t>(std::max<int64_t>(size, 0)));
  }

  PartialBytes* const partial_;
  arrow::MemoryPool* const pool_;
  absl::Status* const error_;
  uint64_t position_;
  std::string peeked_;
};

absl::StatusOr<uint32_t> LengthAt(uint64_t offset, PartialBytes* partial) {
  unsigned char bytes[4];
  BALLAST_RETURN_IF_ERROR(
      partial->Read(offset, sizeof(bytes), reinterpret_cast<char*>(bytes)));
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 |
         uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
}

// Reads the lengths and heads of at most `count` PLAIN values in `values`. From
// a value on that does not fit, all bytes: the decoder finds the same fault.
absl::Status ReadValues(ByteRange values, int64_t count, ReadHead read_head,
                        PartialBytes* partial) {
  uint64_t at = values.offset;
  for (int64_t i = 0; i < count && values.end() - at >= 4; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const uint32_t length, LengthAt(at, partial));
    if (length > values.end() - at - 4) break;
    at += 4;
    absl::Status status;
    const auto read = [&](uint64_t from, uint64_t size, char* to) {
      if (status.ok()) status = partial->Read(at + from, size, to);
      return status;
    };
    read_head(length, read);
    BALLAST_RETURN_IF_ERROR(status);
    at += length;
    if (i + 1 == count) return absl::OkStatus();
  }
  return partial->Keep({at, values.end() - at});
}

// The bytes of the levels before the values, which it keeps; nullopt if they
// are of another encoding than RLE, or damaged.
absl::StatusOr<std::optional<uint64_t>> KeepLevels(
    const parquet::DataPageV1& page, ByteRange body,
    const parquet::ColumnDescriptor& column, PartialBytes* partial) {
  const std::pair<int, Encoding::type> kinds[] = {
      {column.max_repetition_level(), page.repetition_level_encoding()},
      {column.max_definition_level(), page.definition_level_encoding()}};
  uint64_t levels = 0;
  for (const auto& [most, encoding] : kinds) {
    if (most == 0) continue;
    if (encoding != Encoding::RLE || body.size < levels + 4) {
      return std::nullopt;
    }
    BALLAST_ASSIGN_OR_RETURN(const uint64_t length,
                             LengthAt(body.offset + levels, partial));
    if (length > body.size - levels - 4) return std::nullopt;
    BALLAST_RETURN_IF_ERROR(partial->Keep({body.offset + levels, 4 + length}));
    levels += 4 + length;
  }
  return levels;
}

absl::StatusOr<std::optional<uint64_t>> KeepLevels(
    const parquet::DataPageV2& page, ByteRange body, PartialBytes* partial) {
  const int64_t levels = int64_t{page.repetition_levels_byte_length()} +
                         page.definition_levels_byte_length();
  if (levels < 0 || static_cast<uint64_t>(levels) > body.size) {
    return std::nullopt;
  }
  BALLAST_RETURN_IF_ERROR(
      partial->Keep({body.offset, static_cast<uint64_t>(levels)}));
  return static_cast<uint64_t>(levels);
}

// The ranges of a page's PLAIN values, whose preceding bytes are kept; nullopt
// if the page has to be read as a whole.
absl::StatusOr<std::optional<ByteRange>> FindValues(
    const parquet::Page& page, ByteRange body,
    const parquet::ColumnDescriptor& column, PartialBytes* partial) {
  if (page.type() == parquet::PageType::DICTIONARY_PAGE) {
    const auto encoding =
        static_cast<const parquet::DictionaryPage&>(page).encoding();
    if (encoding == Encoding::PLAIN || encoding == Encoding::PLAIN_DICTIONARY) {
      return body;
    }
    return std::nullopt;
  }
  const bool is_v1 = page.type() == parquet::PageType::DATA_PAGE;
  if ((!is_v1 && page.type() != parquet::PageType::DATA_PAGE_V2) ||
      static_cast<const parquet::DataPage&>(page).encoding() !=
          Encoding::PLAIN) {
    return std::nullopt;
  }
  BALLAST_ASSIGN_OR_RETURN(
      const std::optional<uint64_t> levels,
      is_v1 ? KeepLevels(static_cast<const parquet::DataPageV1&>(page), body,
                         column, partial)
            : KeepLevels(static_cast<const parquet::DataPageV2&>(page), body,
                         partial));
  if (!levels.has_value()) return std::nullopt;
  return ByteRange{body.offset + *levels, body.size - *levels};
}

int64_t GetCount(const parquet::Page& page) {
  if (page.type() == parquet::PageType::DICTIONARY_PAGE) {
    return static_cast<const parquet::DictionaryPage&>(page).num_values();
  }
  return static_cast<const parquet::DataPage&>(page).num_values();
}

absl::Status ReadPage(const parquet::Page& page, ByteRange body,
                      const parquet::ColumnDescriptor& column,
                      ReadHead read_head, PartialBytes* partial) {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<ByteRange> values,
                           FindValues(page, body, column, partial));
  if (!values.has_value()) return partial->Keep(body);
  return ReadValues(*values, GetCount(page), read_head, partial);
}

}  // namespace

bool HasImageHeads(const parquet::ColumnChunkMetaData& chunk) {
  return chunk.compression() == parquet::Compression::UNCOMPRESSED &&
         chunk.crypto_metadata() == nullptr;
}

arrow::Status ReadImageHeads(const parquet::ColumnChunkMetaData& chunk,
                             const parquet::ColumnDescriptor& column,
                             ReadHead read_head, arrow::MemoryPool* pool,
                             PartialBytes* partial, absl::Status* error) {
  const auto stream = std::make_shared<PartialPageStream>(partial, pool, error);
  const parquet::ReaderProperties properties(pool);
  const auto pages = parquet::PageReader::Open(
      stream, chunk.num_values(), chunk.compression(), properties, column);
  while (const std::shared_ptr<parquet::Page> page = pages->NextPage()) {
    const uint64_t size = static_cast<uint64_t>(page->size());
    const uint64_t end = stream->position();
    const absl::Status read =
        ReadPage(*page, {end - size, size}, column, read_head, partial);
    if (!read.ok()) {
      *error = read;
      return arrow::Status::IOError(std::string(read.message()));
    }
  }
  return arrow::Status::OK();
}

}  // namespace ballast
