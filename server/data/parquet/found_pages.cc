#include "server/data/parquet/found_pages.h"

#include <arrow/io/interfaces.h>
#include <parquet/column_page.h>
#include <parquet/properties.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "common/status_macros.h"

namespace ballast {
namespace {

using ::parquet::Encoding;
using ::parquet::PageType;

// Below it a page's images cost less if all are read at once.
constexpr uint64_t kMinAverage = 4096;

// A column chunk of which the headers of pages are read. Bodies are passed
// over: their buffers are not initialised, but differ from the bodies in the
// first byte, so that no checksum of a page fits, whatever the memory held.
class PageHeaderStream final : public arrow::io::InputStream {
 public:
  PageHeaderStream(const FileView& file, ByteRange range,
                   arrow::MemoryPool* pool, absl::Status* error)
      : file_(file), range_(range), pool_(pool), error_(*error) {}

  // In the file.
  uint64_t position() const { return range_.offset + position_; }

  // What the last page's header says its body takes before compression, which
  // Arrow does not report for dictionaries: field 2 of a struct in Thrift's
  // compact protocol, after field 1, each a zigzag number. nullopt: written
  // otherwise.
  std::optional<uint64_t> BodyBefore() const {
    uint64_t number = 0;
    size_t at = 0;
    for (int field = 1; field <= 2; ++field) {
      if (at == peeked_.size() || peeked_[at++] != 0x15) return std::nullopt;
      number = 0;
      for (int shift = 0;; shift += 7) {
        if (shift > 28 || at == peeked_.size()) return std::nullopt;
        const auto byte = static_cast<unsigned char>(peeked_[at++]);
        number |= uint64_t{byte & 127u} << shift;
        if (byte < 128) break;
      }
    }
    return number % 2 == 0 ? std::optional(number / 2) : std::nullopt;
  }

  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override {
    return static_cast<int64_t>(position_);
  }
  arrow::Result<std::string_view> Peek(int64_t size) override {
    // Headers take less than a kilobyte, unless they hold long statistics.
    size = size <= kUsual ? std::min<int64_t>(size, kFirst) : size;
    peeked_at_ = position_;
    peeked_.resize(Here(size));
    ARROW_RETURN_NOT_OK(Get(peeked_.size(), peeked_.data()));
    return std::string_view(peeked_);
  }
  arrow::Result<int64_t> Read(int64_t, void*) override {
    return arrow::Status::NotImplemented("bodies of pages are not read");
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override {
    size = static_cast<int64_t>(Here(size));
    ARROW_ASSIGN_OR_RAISE(std::unique_ptr<arrow::Buffer> body,
                          arrow::AllocateBuffer(size, pool_));
    if (size > 0) {
      ARROW_ASSIGN_OR_RAISE(const char first, First());
      body->mutable_data()[0] = static_cast<uint8_t>(~first);
    }
    position_ += static_cast<uint64_t>(size);
    return std::shared_ptr<arrow::Buffer>(std::move(body));
  }

 private:
  // What Arrow peeks at first, and what of it is read.
  static constexpr int64_t kUsual = 16 << 10;
  static constexpr int64_t kFirst = 1 << 10;

  // The byte at the position.
  arrow::Result<char> First() {
    const uint64_t at = position_ - peeked_at_;
    if (at < peeked_.size()) return peeked_[at];
    char byte = 0;
    ARROW_RETURN_NOT_OK(Get(1, &byte));
    return byte;
  }
  arrow::Status Get(uint64_t size, char* out) {
    const absl::Status read = file_.ReadAt(position(), size, out);
    if (read.ok()) return arrow::Status::OK();
    error_ = read;
    return arrow::Status::IOError(std::string(read.message()));
  }
  uint64_t Here(int64_t size) const {
    return std::min(range_.size - position_,
                    static_cast<uint64_t>(std::max<int64_t>(size, 0)));
  }

  const FileView& file_;
  const ByteRange range_;
  arrow::MemoryPool* const pool_;
  absl::Status& error_;
  uint64_t position_ = 0;
  uint64_t peeked_at_ = 0;
  std::string peeked_;  // begins with the last page's header
};

class PlacedPages final : public parquet::PageReader {
 public:
  PlacedPages(const FileView& file, const ImageChunk& chunk,
              arrow::MemoryPool* pool, absl::Status* error, FoundValues* found)
      : file_(file),
        is_snappy_(chunk.chunk.compression() == parquet::Compression::SNAPPY),
        column_(chunk.column),
        pool_(pool),
        error_(*error),
        found_(*found),
        stream_(std::make_shared<PageHeaderStream>(file, chunk.range, pool,
                                                   error)) {
    parquet::ReaderProperties properties(pool);
    // A body that was not read has no page's checksum: pages that have one are
    // an exception here, and read as a whole.
    properties.set_page_checksum_verification(true);
    // The bodies stay as they are.
    headers_ = parquet::PageReader::Open(
        stream_, chunk.chunk.num_values(), parquet::Compression::UNCOMPRESSED,
        properties, column_,
        chunk.file.writer_version().VersionLt(
            parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION()));
  }

  void set_max_page_header_size(uint32_t) override {}

  std::shared_ptr<parquet::Page> NextPage() override {
    if (found_.is_other || !error_.ok()) return nullptr;
    const std::shared_ptr<parquet::Page> page = headers_->NextPage();
    if (page == nullptr) return nullptr;
    const uint64_t size = static_cast<uint64_t>(page->size());
    auto placed = Place(*page, {stream_->position() - size, size});
    if (!placed.ok()) {
      if (error_.ok()) error_ = placed.status();
      return nullptr;
    }
    found_.is_other = *placed == nullptr;
    return *std::move(placed);
  }

 private:
  using Placed = absl::StatusOr<std::shared_ptr<parquet::Page>>;

  // nullptr: another kind of page.
  Placed Place(const parquet::Page& page, ByteRange range) {
    PageBody body(&file_, &found_.others);
    switch (page.type()) {
      case PageType::DICTIONARY_PAGE:
        return PlaceDictionary(
            static_cast<const parquet::DictionaryPage&>(page), range, body);
      case PageType::DATA_PAGE:
        return PlaceV1(static_cast<const parquet::DataPageV1&>(page), range,
                       body);
      case PageType::DATA_PAGE_V2:
        return PlaceV2(static_cast<const parquet::DataPageV2&>(page), range,
                       body);
      default:
        return nullptr;
    }
  }

  absl::StatusOr<bool> AddTo(PageBody& body, ByteRange range,
                             bool is_compressed) {
    if (is_compressed) return body.AddSnappy(range);
    body.AddPlain(range);
    return true;
  }

  Placed PlaceDictionary(const parquet::DictionaryPage& page, ByteRange range,
                         PageBody& body) {
    if (page.encoding() != Encoding::PLAIN &&
        page.encoding() != Encoding::PLAIN_DICTIONARY) {
      return nullptr;
    }
    BALLAST_ASSIGN_OR_RETURN(const bool fits, AddTo(body, range, is_snappy_));
    if (!fits || body.size() != stream_->BodyBefore()) return nullptr;
    BALLAST_ASSIGN_OR_RETURN(const auto values,
                             Number(body, 0, page.num_values(), 0));
    if (values == nullptr || values->size() != page.num_values() * int64_t{8}) {
      return nullptr;
    }
    return std::make_shared<parquet::DictionaryPage>(values, page.num_values(),
                                                     Encoding::PLAIN);
  }

  Placed PlaceV1(const parquet::DataPageV1& page, ByteRange range,
                 PageBody& body) {
    BALLAST_ASSIGN_OR_RETURN(const bool fits, AddTo(body, range, is_snappy_));
    if (!fits) return nullptr;
    uint64_t levels = 0;
    const std::pair<int, Encoding::type> kinds[] = {
        {column_.max_repetition_level(), page.repetition_level_encoding()},
        {column_.max_definition_level(), page.definition_level_encoding()}};
    for (const auto& [most, encoding] : kinds) {
      if (most == 0) continue;
      if (encoding != Encoding::RLE || body.size() < levels + 4) return nullptr;
      BALLAST_ASSIGN_OR_RETURN(const uint32_t length, LengthAt(body, levels));
      if (length > body.size() - levels - 4) return nullptr;
      levels += 4 + length;
    }
    BALLAST_ASSIGN_OR_RETURN(const auto values, Values(page, body, levels));
    if (values == nullptr) return nullptr;
    return std::make_shared<parquet::DataPageV1>(
        values, page.num_values(), page.encoding(),
        page.definition_level_encoding(), page.repetition_level_encoding(),
        values->size());
  }

  Placed PlaceV2(const parquet::DataPageV2& page, ByteRange range,
                 PageBody& body) {
    const int64_t levels = int64_t{page.repetition_levels_byte_length()} +
                           page.definition_levels_byte_length();
    if (levels < 0 || static_cast<uint64_t>(levels) > range.size) {
      return nullptr;
    }
    const uint64_t before = static_cast<uint64_t>(levels);
    body.AddPlain({range.offset, before});
    const ByteRange rest = {range.offset + before, range.size - before};
    BALLAST_ASSIGN_OR_RETURN(
        const bool fits,
        AddTo(body, rest, is_snappy_ && page.is_compressed() && rest.size > 0));
    if (!fits) return nullptr;
    BALLAST_ASSIGN_OR_RETURN(const auto values, Values(page, body, before));
    if (values == nullptr) return nullptr;
    return std::make_shared<parquet::DataPageV2>(
        values, page.num_values(), page.num_nulls(), page.num_rows(),
        page.encoding(), page.definition_levels_byte_length(),
        page.repetition_levels_byte_length(), values->size());
  }

  // The body of a data page with numbers for values, which begin at `levels`.
  // nullptr: another kind of page.
  absl::StatusOr<std::shared_ptr<arrow::Buffer>> Values(
      const parquet::DataPage& page, const PageBody& body, uint64_t levels) {
    if (static_cast<int64_t>(body.size()) != page.uncompressed_size()) {
      return nullptr;
    }
    found_.has_numbers = true;
    if (page.encoding() == Encoding::RLE_DICTIONARY ||
        page.encoding() == Encoding::PLAIN_DICTIONARY) {
      return Copy(body, body.size());
    }
    if (page.encoding() != Encoding::PLAIN) return nullptr;
    return Number(body, levels, page.num_values(), levels);
  }

  absl::StatusOr<std::shared_ptr<arrow::Buffer>> Copy(const PageBody& body,
                                                      uint64_t size) {
    auto buffer = arrow::AllocateBuffer(static_cast<int64_t>(size), pool_);
    if (!buffer.ok()) return nullptr;
    BALLAST_RETURN_IF_ERROR(
        body.Read(0, size, reinterpret_cast<char*>((*buffer)->mutable_data())));
    return std::shared_ptr<arrow::Buffer>(*std::move(buffer));
  }

  // The first `levels` bytes of the body, and numbers of at most `count` PLAIN
  // values, which begin at `at`.
  absl::StatusOr<std::shared_ptr<arrow::Buffer>> Number(const PageBody& body,
                                                        uint64_t at,
                                                        int64_t count,
                                                        uint64_t levels) {
    // Of rows without images there are no values.
    const uint64_t most = body.size() / kMinAverage + 1;
    BALLAST_ASSIGN_OR_RETURN(const auto before, Copy(body, levels));
    arrow::BufferBuilder page(pool_);
    if (before == nullptr ||
        !page.Append(before->data(), before->size()).ok()) {
      return nullptr;
    }
    for (int64_t i = 0; i < count && body.size() - at >= 4; ++i) {
      if (static_cast<uint64_t>(i) == most) return nullptr;
      BALLAST_ASSIGN_OR_RETURN(const uint32_t length, LengthAt(body, at));
      at += 4;
      if (length > body.size() - at) return nullptr;
      FoundValue value;
      value.size = length;
      value.first_piece = found_.pieces.size();
      body.AddPieces(at, length, &found_.pieces);
      value.num_pieces = found_.pieces.size() - value.first_piece;
      if (length == 0) value.bytes = "";
      if (!found_.AddNumbered(value, &page).ok()) return nullptr;
      at += length;
    }
    auto values = page.Finish();
    if (!values.ok()) return nullptr;
    return *std::move(values);
  }

  static absl::StatusOr<uint32_t> LengthAt(const PageBody& body, uint64_t at) {
    char bytes[4];
    BALLAST_RETURN_IF_ERROR(body.Read(at, sizeof(bytes), bytes));
    uint32_t length = 0;
    for (int i = 0; i < 4; ++i) {
      length |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return length;
  }

  const FileView& file_;
  const bool is_snappy_;
  const parquet::ColumnDescriptor& column_;
  arrow::MemoryPool* const pool_;
  absl::Status& error_;
  FoundValues& found_;
  const std::shared_ptr<PageHeaderStream> stream_;
  std::unique_ptr<parquet::PageReader> headers_;
};

}  // namespace

std::unique_ptr<parquet::PageReader> PlacePages(const FileView& file,
                                                const ImageChunk& chunk,
                                                arrow::MemoryPool* pool,
                                                absl::Status* error,
                                                FoundValues* found) {
  return std::make_unique<PlacedPages>(file, chunk, pool, error, found);
}

namespace {

using ::parquet::Encoding;

bool IsPlain(Encoding::type encoding) { return encoding == Encoding::PLAIN; }

bool IsDictionary(Encoding::type encoding) {
  return encoding == Encoding::RLE_DICTIONARY ||
         encoding == Encoding::PLAIN_DICTIONARY;
}

// A column chunk as pages are read from it. Bodies of pages that are not
// compressed are kept; of others one is in memory at a time.
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

class KeptPages final : public parquet::PageReader {
 public:
  KeptPages(std::shared_ptr<ChunkStream> stream, const ImageChunk& chunk,
            arrow::MemoryPool* pool, FoundValues* found)
      : stream_(std::move(stream)),
        codec_(chunk.chunk.compression()),
        // Writers that compressed and said they had not.
        always_compressed_(chunk.file.writer_version().VersionLt(
            parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION())),
        column_(chunk.column),
        pool_(pool),
        left_(chunk.chunk.num_values()),
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
    found_.has_numbers = IsDictionary(data.encoding());
    if (!found_.has_numbers && !IsPlain(data.encoding())) {
      found_.is_other = true;
      return nullptr;
    }
    if (!found_.has_numbers) Keep(*page);
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
      PARQUET_THROW_NOT_OK(found_.AddNumbered({at + 4, length}, &numbers));
      at += 4 + int64_t{length};
      left -= 4 + int64_t{length};
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
  FoundValues& found_;
};

}  // namespace

std::unique_ptr<parquet::PageReader> KeepPages(std::shared_ptr<ArrowFile> file,
                                               const ImageChunk& chunk,
                                               arrow::MemoryPool* pool,
                                               FoundValues* found) {
  const bool keeps =
      chunk.chunk.compression() == parquet::Compression::UNCOMPRESSED;
  return std::make_unique<KeptPages>(
      std::make_shared<ChunkStream>(std::move(file), chunk.range, keeps, pool),
      chunk, pool, found);
}

}  // namespace ballast
