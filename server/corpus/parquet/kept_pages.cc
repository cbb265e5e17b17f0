#include "server/corpus/parquet/kept_pages.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/status.h>
#include <parquet/column_page.h>
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
