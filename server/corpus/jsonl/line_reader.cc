#include "server/corpus/jsonl/line_reader.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "common/status_macros.h"

namespace ballast {

LineReader::LineReader(const File* file, uint64_t max_length)
    : file_(file), max_length_(max_length) {}

absl::StatusOr<std::optional<Line>> LineReader::Next() {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
  Line line;
  line.number = ++number_;
  if (position_ == 0) {
    BALLAST_ASSIGN_OR_RETURN(
        buffer_, file_->ReadAt(0, std::min(kChunk, file_->stamp().size)));
    position_ = buffer_.size();
    // No part of the first line: its JSON would not be read.
    if (absl::StartsWith(buffer_, kByteOrderMark)) {
      used_ = kByteOrderMark.size();
    }
  }
  line.offset = position_ - (buffer_.size() - used_);
  line_.clear();
  uint64_t length = 0;
  bool ends_with_return = false;
  bool found_break = false;
  while (!found_break) {
    if (used_ == buffer_.size()) {
      const uint64_t size = std::min(kChunk, file_->stamp().size - position_);
      if (size == 0) break;
      BALLAST_ASSIGN_OR_RETURN(buffer_, file_->ReadAt(position_, size));
      position_ += size;
      used_ = 0;
    }
    const size_t end = buffer_.find('\n', used_);
    found_break = end != std::string::npos;
    const size_t size = std::min(end, buffer_.size()) - used_;
    if (size > 0) ends_with_return = buffer_[used_ + size - 1] == '\r';
    length += size;
    // The extra byte beyond the bound may be a '\r'.
    if (length <= max_length_ + 1) line_.append(buffer_, used_, size);
    used_ += size + (found_break ? 1 : 0);
  }
  if (length == 0 && !found_break) return std::nullopt;
  line.length = length - (ends_with_return ? 1 : 0);
  if (line.length <= max_length_) {
    line.text = absl::string_view(line_).substr(0, line.length);
  }
  return line;
}

}  // namespace ballast
