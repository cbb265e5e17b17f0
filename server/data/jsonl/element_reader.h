#ifndef BALLAST_SERVER_DATA_JSONL_ELEMENT_READER_H_
#define BALLAST_SERVER_DATA_JSONL_ELEMENT_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file.h"

namespace ballast {
struct Line {
  uint64_t number = 0;  // from 1
  uint64_t offset = 0;
  // Bytes, without the line break ("\n" or "\r\n").
  uint64_t length = 0;
  // Empty if `length` is over the reader's bound. Valid until the next call.
  absl::string_view text;
};

// Reads a file line by line, 1 MiB at a time. The last line may lack its break.
// Thread-compatible; blocks on the disk.
class LineReader {
 public:
  // `file` must outlive the reader. The text of lines longer than `max_length`
  // is dropped.
  LineReader(const File* file, uint64_t max_length);

  // The next line, or nullopt at the end. Errors: as File::ReadAt.
  absl::StatusOr<std::optional<Line>> Next();

 private:
  const File* file_;
  const uint64_t max_length_;
  uint64_t number_ = 0;
  uint64_t position_ = 0;  // in the file, after the bytes of `buffer_`
  std::string buffer_;
  size_t used_ = 0;  // bytes of `buffer_` that have been returned
  std::string line_;
};

// Whether the file is one JSON array: its first byte after blanks and a byte
// order mark, within 4 KiB, is '[', or `{"data": [{` begins it, or another name
// of a list of records. Errors: as File::ReadAt.
absl::StatusOr<bool> IsJsonArray(const File& file);

// Reads a file that is one JSON array element by element, 1 MiB at a time,
// whatever the line breaks and the size of the file. Finds the elements'
// bounds alone: brackets and strings are followed, all else is left to the
// parser of the element. Thread-compatible; blocks on the disk.
class ElementReader {
 public:
  // `file` must outlive the reader. The text of elements longer than
  // `max_length` is dropped.
  ElementReader(const File* file, uint64_t max_length);

  // The next element, as a Line with the element's number, from 1; nullopt
  // after the array's end. Errors: DATA_LOSS (the array is cut off, or another
  // character than a comma or the end follows an element; names the byte;
  // nothing after it can be read); as File::ReadAt.
  absl::StatusOr<std::optional<Line>> Next();

  // Bytes read so far.
  uint64_t offset() const { return position_ - (buffer_.size() - used_); }

 private:
  // What may come next.
  enum class Place { kBegin, kFirst, kElement, kBehindElement, kEnd };

  // The byte at offset(), or nullopt at the end of the file.
  absl::StatusOr<std::optional<char>> Peek();
  absl::StatusOr<std::optional<char>> PeekBehindBlanks();
  // Takes a byte of the element that is being read.
  void Take();
  absl::Status TakeElement();
  absl::Status TakeString();
  absl::Status TakeNested();
  absl::Status TakeScalar();
  absl::Status Broken(absl::string_view reason);

  const File* file_;
  const uint64_t max_length_;
  Place place_ = Place::kBegin;
  bool is_wrapped_ = false;  // {"data": […]}
  uint64_t number_ = 0;
  uint64_t position_ = 0;  // in the file, after the bytes of `buffer_`
  std::string buffer_;
  size_t used_ = 0;
  std::string text_;     // of the element, up to max_length_ bytes
  uint64_t length_ = 0;  // of the element
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_ELEMENT_READER_H_
