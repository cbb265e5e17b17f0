#ifndef BALLAST_SERVER_DATA_PARQUET_ARROW_FILE_H_
#define BALLAST_SERVER_DATA_PARQUET_ARROW_FILE_H_

#include <cstdint>
#include <memory>

#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include "absl/status/status.h"
#include "server/data/parquet/page_body.h"
#include "server/files/file.h"

namespace ballast {

// One of our files as Arrow reads files. Remembers the first error, to
// distinguish a failing disk from a damaged file. Does not own the file.
// Thread-compatible: for readers without their own threads.
class ArrowFile final : public arrow::io::RandomAccessFile {
 public:
  // Buffers of its reads come from `pool`. Reads that begin within the range of
  // `partial`, unless that is null, get its bytes there. Owns none of them.
  ArrowFile(FileView file, arrow::MemoryPool* pool,
            const PartialBytes* partial = nullptr)
      : file_(file), pool_(pool), partial_(partial) {}

  // The first failure of a read; OK if none failed.
  const absl::Status& error() const { return error_; }

  arrow::Status Close() override;
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override;
  arrow::Result<int64_t> GetSize() override {
    return static_cast<int64_t>(file_.size());
  }
  arrow::Result<int64_t> Read(int64_t size, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override;
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t size,
                                void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t size) override;

 private:
  absl::Status ReadFile(uint64_t position, uint64_t size, char* out);

  const FileView file_;
  arrow::MemoryPool* const pool_;
  const PartialBytes* const partial_;
  int64_t position_ = 0;
  absl::Status error_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_ARROW_FILE_H_
