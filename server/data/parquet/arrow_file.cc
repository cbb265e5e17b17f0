#include "server/data/parquet/arrow_file.h"

#include <algorithm>
#include <string>

#include <arrow/buffer.h>

namespace ballast {

arrow::Status ArrowFile::Close() { return arrow::Status::OK(); }

arrow::Status ArrowFile::Seek(int64_t position) {
  if (position < 0) return arrow::Status::Invalid("seek before the file");
  position_ = position;
  return arrow::Status::OK();
}

absl::Status ArrowFile::ReadFile(uint64_t position, uint64_t size, char* out) {
  if (partial_ != nullptr && partial_->range().Covers({position, 0})) {
    const uint64_t here = std::min(size, partial_->range().end() - position);
    partial_->CopyTo(position, here, out);
    position += here;
    size -= here;
    out += here;
  }
  return size == 0 ? absl::OkStatus() : file_.ReadAt(position, size, out);
}

arrow::Result<int64_t> ArrowFile::ReadAt(int64_t position, int64_t size,
                                         void* out) {
  if (position < 0 || size < 0) {
    return arrow::Status::Invalid("read of ", size, " bytes at ", position);
  }
  const int64_t end = static_cast<int64_t>(file_.size());
  const int64_t readable = std::min(size, std::max<int64_t>(end - position, 0));
  if (readable == 0) return 0;
  const absl::Status read =
      ReadFile(static_cast<uint64_t>(position), static_cast<uint64_t>(readable),
               static_cast<char*>(out));
  if (read.ok()) return readable;
  if (error_.ok()) error_ = read;
  return arrow::Status::IOError(std::string(read.message()));
}

arrow::Result<std::shared_ptr<arrow::Buffer>> ArrowFile::ReadAt(
    int64_t position, int64_t size) {
  if (position < 0 || size < 0) {
    return arrow::Status::Invalid("read of ", size, " bytes at ", position);
  }
  // Sizes come from the file: never more memory than it has bytes.
  const int64_t end = static_cast<int64_t>(file_.size());
  size = std::min(size, std::max<int64_t>(end - position, 0));
  ARROW_ASSIGN_OR_RAISE(std::unique_ptr<arrow::ResizableBuffer> buffer,
                        arrow::AllocateResizableBuffer(size, pool_));
  ARROW_ASSIGN_OR_RAISE(const int64_t read,
                        ReadAt(position, size, buffer->mutable_data()));
  ARROW_RETURN_NOT_OK(buffer->Resize(read));
  return std::shared_ptr<arrow::Buffer>(std::move(buffer));
}

arrow::Result<int64_t> ArrowFile::Read(int64_t size, void* out) {
  ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position_, size, out));
  position_ += read;
  return read;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> ArrowFile::Read(int64_t size) {
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer,
                        ReadAt(position_, size));
  position_ += buffer->size();
  return buffer;
}

}  // namespace ballast
