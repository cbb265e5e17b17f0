#ifndef BALLAST_SERVER_DATA_PARQUET_PAGE_BODY_H_
#define BALLAST_SERVER_DATA_PARQUET_PAGE_BODY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/files/file.h"
#include "server/files/object_store.h"

namespace ballast {

// A range of a file of which only parts have been read: whoever reads it once
// more gets those parts, and zeros for the rest. Takes the memory of the parts.
// Thread-compatible.
//
//   PartialBytes partial(&file, chunk);
//   partial.Read(offset, 4, length);                  // from the file
//   partial.CopyTo(chunk.offset, chunk.size, bytes);  // four bytes, and zeros
class PartialBytes {
 public:
  // `file` is not owned.
  PartialBytes(const File* file, ByteRange range)
      : file_(file), range_(range) {}

  const ByteRange& range() const { return range_; }
  // What all parts take.
  uint64_t bytes() const { return bytes_; }

  // Reads from the file and keeps what it read. Reads ascend: each begins
  // after all gaps that earlier ones have left. Errors: INTERNAL (not so),
  // DATA_LOSS (not within the range); as File::ReadAt.
  absl::Status Read(uint64_t offset, uint64_t size, char* out);
  // Reads it only to keep it.
  absl::Status Keep(ByteRange part);

  // Copies `size` bytes at `offset`, within the range.
  void CopyTo(uint64_t offset, uint64_t size, char* out) const;

 private:
  struct Part {
    uint64_t offset;
    std::string bytes;
    uint64_t end() const { return offset + bytes.size(); }
  };
  absl::Status Check(uint64_t offset, uint64_t size) const;

  const File* const file_;
  const ByteRange range_;
  // Ascending, apart from each other.
  std::vector<Part> parts_;
  uint64_t bytes_ = 0;
};

// The file of an image in a row: in memory, or in pieces of the Parquet file,
// which follow each other. A view.
struct ParquetImage {
  uint64_t size = 0;
  absl::string_view bytes;  // unless it has pieces
  absl::Span<const FilePiece> pieces;
  absl::string_view others;  // of pieces that are not in the file
};

// Adds an image to a sample's. Errors: INVALID_ARGUMENT (over kMaxImages
// or kMaxSampleBytes).
absl::Status AppendImage(const ParquetImage& image,
                         std::vector<ParquetImage>* images);

// The body of a page, as it is before compression, in place in a file.
// Snappy writes bytes that it cannot shrink, such as JPEGs, as they
// are, 64 KiB at a time: only the marks between them are read. All reads are of
// `file`, which it does not own. Thread-compatible.
class PageBody {
 public:
  // Bytes that the file does not hold verbatim are appended to `others`.
  PageBody(const FileView* file, std::string* others)
      : file_(*file), others_(*others) {}

  uint64_t size() const { return size_; }

  // Appends bytes that are not compressed.
  void AddPlain(ByteRange range);
  // Appends what Snappy made `range` of. false: damaged, or so compressed that
  // the pieces would be many: more than one in 8 KiB. Errors: as
  // FileView::ReadAt.
  absl::StatusOr<bool> AddSnappy(ByteRange range);

  // Copies bytes that are within the body. Errors: as FileView::ReadAt.
  absl::Status Read(uint64_t offset, uint64_t size, char* out) const;
  // Appends the places of bytes within the body.
  void AddPieces(uint64_t offset, uint64_t size,
                 std::vector<FilePiece>* pieces) const;

 private:
  struct Segment {
    uint64_t begin;  // in the body
    FilePiece piece;
  };
  void Add(FilePiece piece);
  // Appends `size` bytes that begin `back` bytes before the end.
  absl::Status AddCopy(uint64_t back, uint64_t size);
  std::vector<Segment>::const_iterator Find(uint64_t offset) const;

  const FileView& file_;
  std::string& others_;
  std::vector<Segment> segments_;
  uint64_t size_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_PAGE_BODY_H_
