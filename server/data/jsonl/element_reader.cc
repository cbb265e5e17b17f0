#include "server/data/jsonl/element_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

constexpr uint64_t kHead = 4096;

bool Skip(absl::string_view text, absl::string_view* left) {
  *left = absl::StripLeadingAsciiWhitespace(*left);
  return absl::ConsumePrefix(left, text);
}

// Removes a text, a number or an object from the beginning of `left`.
bool SkipValue(absl::string_view* left) {
  *left = absl::StripLeadingAsciiWhitespace(*left);
  int depth = 0;
  bool is_text = false;
  for (size_t i = 0; i < left->size(); ++i) {
    const char c = (*left)[i];
    if (c == '\\' && is_text) {
      ++i;
    } else if (c == '"') {
      is_text = !is_text;
    } else if (!is_text) {
      if (c == '[') return false;
      if (depth == 0 && (c == ',' || c == '}')) {
        left->remove_prefix(i);
        return true;
      }
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    }
  }
  return false;
}

// The length of `{"version": 1, "data":` in front of the array of a file,
// {"version": 1, "data": [{…}, …]}; 0 if it is none, also of lines that have
// such a list each. In front of the list may be what describes it.
size_t WrapperLength(absl::string_view head) {
  constexpr absl::string_view kLists[] = {"data",      "samples", "examples",
                                          "instances", "rows",    "train"};
  constexpr absl::string_view kFacts[] = {
      "version",         "info",        "dataset_type",
      "dataset_name",    "name",        "license",
      "dataset_version", "description", "split",
      "metadata",        "meta",        "task_type",
      "data_type",       "date",        "dataset_split"};
  const auto is_among = [](absl::string_view name, const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  head = head.substr(0, kHead);
  absl::string_view left = head;
  if (!Skip("{", &left)) return 0;
  absl::string_view first;
  while (Skip("\"", &left)) {
    const size_t end = std::min(left.find('"'), left.size());
    const absl::string_view name = left.substr(0, end);
    if (first.empty()) first = name;
    left.remove_prefix(end);
    if (!Skip("\"", &left) || !Skip(":", &left)) return 0;
    if (is_among(name, kLists)) {
      const size_t length = head.size() - left.size();
      if (!Skip("[", &left) || !Skip("{", &left)) return 0;
      return absl::StrContains(left, absl::StrCat("\n{\"", first, "\""))
                 ? 0
                 : length;
    }
    if (!is_among(name, kFacts) || !SkipValue(&left) || !Skip(",", &left)) {
      return 0;
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<bool> IsJsonArray(const File& file) {
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      file.ReadAt(0, std::min<uint64_t>(kHead, file.stamp().size)));
  absl::string_view left = head;
  absl::ConsumePrefix(&left, kByteOrderMark);
  left = absl::StripLeadingAsciiWhitespace(left);
  if (!left.empty() && left.front() == '[') return true;
  return WrapperLength(left) > 0;
}

ElementReader::ElementReader(const File* file, uint64_t max_length)
    : file_(file), max_length_(max_length) {}

absl::StatusOr<std::optional<Line>> ElementReader::Next() {
  while (place_ != Place::kEnd) {
    BALLAST_ASSIGN_OR_RETURN(std::optional<char> next, PeekBehindBlanks());
    if (!next.has_value()) {
      return Broken("the file ends inside its array; was it cut?");
    }
    const bool may_begin = place_ == Place::kFirst || place_ == Place::kElement;
    if (place_ == Place::kBegin) {
      if (*next == '{') {
        used_ += WrapperLength(absl::string_view(buffer_).substr(used_));
        is_wrapped_ = true;
        BALLAST_ASSIGN_OR_RETURN(next, PeekBehindBlanks());
        if (!next.has_value()) return Broken("no '[' at the beginning");
      }
      if (*next != '[') return Broken("no '[' at the beginning");
      ++used_;
      place_ = Place::kFirst;
    } else if (*next == ']' && place_ != Place::kElement) {
      ++used_;
      place_ = Place::kEnd;
      BALLAST_ASSIGN_OR_RETURN(std::optional<char> more, PeekBehindBlanks());
      if (is_wrapped_ && more == '}') {
        ++used_;
        BALLAST_ASSIGN_OR_RETURN(more, PeekBehindBlanks());
      }
      if (more.has_value()) return Broken("something follows the array");
    } else if (*next == ',' && place_ == Place::kBehindElement) {
      ++used_;
      place_ = Place::kElement;
    } else if (!may_begin || *next == ',' || *next == ']' || *next == '}') {
      return Broken(absl::StrCat(
          "found '", absl::string_view(&*next, 1),
          may_begin ? "', wanted an element" : "', wanted ',' or ']'"));
    } else {
      Line element;
      element.number = ++number_;
      element.offset = offset();
      text_.clear();
      length_ = 0;
      BALLAST_RETURN_IF_ERROR(TakeElement());
      place_ = Place::kBehindElement;
      element.length = length_;
      if (length_ <= max_length_) element.text = text_;
      return element;
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<char>> ElementReader::Peek() {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  if (used_ == buffer_.size()) {
    const uint64_t size = std::min(kChunk, file_->stamp().size - position_);
    if (size == 0) return std::nullopt;
    BALLAST_ASSIGN_OR_RETURN(buffer_, file_->ReadAt(position_, size));
    position_ += size;
    used_ = 0;
  }
  return buffer_[used_];
}

absl::StatusOr<std::optional<char>> ElementReader::PeekBehindBlanks() {
  BALLAST_ASSIGN_OR_RETURN(std::optional<char> next, Peek());
  if (offset() == 0 && next == kByteOrderMark.front() &&
      absl::string_view(buffer_).substr(0, 3) == kByteOrderMark) {
    used_ += kByteOrderMark.size();
    BALLAST_ASSIGN_OR_RETURN(next, Peek());
  }
  while (next.has_value() && IsBlank(*next)) {
    ++used_;
    BALLAST_ASSIGN_OR_RETURN(next, Peek());
  }
  return next;
}

void ElementReader::Take() {
  if (length_++ < max_length_) text_ += buffer_[used_];
  ++used_;
}

absl::Status ElementReader::TakeElement() {
  const char first = buffer_[used_];
  if (first == '"') return TakeString();
  if (first == '{' || first == '[') return TakeNested();
  return TakeScalar();
}

absl::Status ElementReader::TakeString() {
  Take();
  bool escaped = false;
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<char> next, Peek());
    if (!next.has_value()) return Broken("the file ends inside a string");
    Take();
    if (escaped) {
      escaped = false;
    } else if (*next == '\\') {
      escaped = true;
    } else if (*next == '"') {
      return absl::OkStatus();
    }
  }
}

// Brackets of both kinds are counted alike: whether they fit one another is
// left to the parser, and the count ends where theirs does.
absl::Status ElementReader::TakeNested() {
  uint64_t depth = 0;
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<char> next, Peek());
    if (!next.has_value()) {
      return Broken("the file ends inside an element; was it cut?");
    }
    if (*next == '"') {
      BALLAST_RETURN_IF_ERROR(TakeString());
      continue;
    }
    Take();
    if (*next == '{' || *next == '[') {
      ++depth;
    } else if ((*next == '}' || *next == ']') && --depth == 0) {
      return absl::OkStatus();
    }
  }
}

absl::Status ElementReader::TakeScalar() {
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<char> next, Peek());
    if (!next.has_value() || IsBlank(*next) || *next == ',' || *next == ']' ||
        *next == '}') {
      return absl::OkStatus();
    }
    Take();
  }
}

absl::Status ElementReader::Broken(absl::string_view reason) {
  place_ = Place::kEnd;
  return absl::DataLossError(absl::StrCat("JSON array: ", reason, " (byte ",
                                          offset(), ", behind element ",
                                          number_, ")"));
}

}  // namespace ballast
