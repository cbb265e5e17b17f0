#include "server/data/parquet/page_body.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {

absl::Status PartialBytes::Check(uint64_t offset, uint64_t size) const {
  if (!range_.Covers({offset, size})) {
    return AsDataFault(absl::DataLossError(absl::StrCat(
        size, " bytes at ", offset, " are not within the column's ",
        range_.size, " at ", range_.offset)));
  }
  if (!parts_.empty() && offset < parts_.back().offset) {
    return absl::InternalError(
        absl::StrCat("read at ", offset, " after ", parts_.back().offset));
  }
  return absl::OkStatus();
}

absl::Status PartialBytes::Read(uint64_t offset, uint64_t size, char* out) {
  BALLAST_RETURN_IF_ERROR(Check(offset, size));
  BALLAST_RETURN_IF_ERROR(file_->ReadAt(offset, size, out));
  if (parts_.empty() || offset > parts_.back().end()) {
    parts_.push_back({offset, ""});
  }
  Part& last = parts_.back();
  const uint64_t known = std::min(size, last.end() - offset);
  last.bytes.append(out + known, size - known);
  bytes_ += size - known;
  return absl::OkStatus();
}

absl::Status PartialBytes::Keep(ByteRange part) {
  BALLAST_RETURN_IF_ERROR(Check(part.offset, part.size));
  const std::unique_ptr<char[]> bytes(new char[part.size]);
  return Read(part.offset, part.size, bytes.get());
}

void PartialBytes::CopyTo(uint64_t offset, uint64_t size, char* out) const {
  std::memset(out, 0, size);
  const uint64_t end = offset + size;
  auto part = std::upper_bound(
      parts_.begin(), parts_.end(), offset,
      [](uint64_t wanted, const Part& p) { return wanted < p.end(); });
  for (; part != parts_.end() && part->offset < end; ++part) {
    const uint64_t begin = std::max(offset, part->offset);
    const uint64_t count = std::min(end, part->end()) - begin;
    std::memcpy(out + (begin - offset),
                part->bytes.data() + (begin - part->offset), count);
  }
}

absl::Status AppendImage(const ParquetImage& image,
                         std::vector<ParquetImage>* images) {
  if (images->size() == kMaxImages) {
    return DataFaultError(absl::StrCat("over ", kMaxImages, " images"));
  }
  uint64_t all = image.size;
  for (const ParquetImage& other : *images) all += other.size;
  if (all > kMaxSampleBytes) {
    return DataFaultError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  images->push_back(image);
  return absl::OkStatus();
}

namespace {

// Bytes of a range in order, of which some are skipped. Reads a few at a time.
class FewBytes {
 public:
  FewBytes(const FileView& file, ByteRange range)
      : file_(file), at_(range.offset), end_(range.end()) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return end_ - at_; }
  void Skip(uint64_t size) { at_ += size; }

  // The number that the next `count` bytes are, at most 8, the lowest first;
  // nullopt at the end.
  absl::StatusOr<std::optional<uint64_t>> Take(size_t count) {
    if (left() < count) return std::nullopt;
    if (at_ < begin_ || at_ + count > begin_ + size_) {
      begin_ = at_;
      size_ = std::min<uint64_t>(left(), window_.size());
      BALLAST_RETURN_IF_ERROR(file_.ReadAt(begin_, size_, window_.data()));
    }
    uint64_t number = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<unsigned char>(window_[at_ - begin_ + i]);
      number |= uint64_t{byte} << (8 * i);
    }
    at_ += count;
    return number;
  }

 private:
  const FileView& file_;
  uint64_t at_;
  const uint64_t end_;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
  std::array<char, 128> window_;
};

// The next element of a stream: bytes that follow it, or, with `back`, a copy
// of bytes that came before.
struct Element {
  uint64_t size = 0;
  std::optional<uint64_t> back;
};

// nullopt: the stream ends in it.
absl::StatusOr<std::optional<Element>> NextElement(FewBytes& bytes) {
  BALLAST_ASSIGN_OR_RETURN(const auto tag, bytes.Take(1));
  if (!tag.has_value()) return std::nullopt;
  const uint64_t upper = *tag >> 2;
  Element element;
  size_t more = 0;
  switch (*tag & 3) {
    case 0: {
      element.size = upper + 1;
      if (upper < 60) return element;
      BALLAST_ASSIGN_OR_RETURN(const auto size, bytes.Take(upper - 59));
      if (!size.has_value()) return std::nullopt;
      element.size = *size + 1;
      return element;
    }
    case 1:
      element.size = (upper & 7) + 4;
      more = 1;
      break;
    case 2:
      element.size = upper + 1;
      more = 2;
      break;
    default:
      element.size = upper + 1;
      more = 4;
  }
  BALLAST_ASSIGN_OR_RETURN(const auto back, bytes.Take(more));
  if (!back.has_value()) return std::nullopt;
  element.back = more == 1 ? (upper >> 3) << 8 | *back : *back;
  return element;
}

// The length that a stream begins with: seven bits a byte, in at most five.
absl::StatusOr<std::optional<uint64_t>> TakeLength(FewBytes& bytes) {
  uint64_t length = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    BALLAST_ASSIGN_OR_RETURN(const auto byte, bytes.Take(1));
    if (!byte.has_value()) return std::nullopt;
    length |= (*byte & 127) << shift;
    if (*byte < 128) return length;
  }
  return std::nullopt;
}

}  // namespace

void PageBody::Add(FilePiece piece) {
  if (piece.size == 0) return;
  segments_.push_back({size_, piece});
  size_ += piece.size;
}

void PageBody::AddPlain(ByteRange range) { Add({range.offset, range.size}); }

absl::Status PageBody::AddCopy(uint64_t back, uint64_t size) {
  const uint64_t begin = others_.size();
  others_.resize(begin + size);
  const uint64_t known = std::min(back, size);
  BALLAST_RETURN_IF_ERROR(Read(size_ - back, known, &others_[begin]));
  // A copy may go on with what it has written.
  for (uint64_t i = known; i < size; ++i) {
    others_[begin + i] = others_[begin + i - back];
  }
  Add({begin, size, /*in_file=*/false});
  return absl::OkStatus();
}

absl::StatusOr<bool> PageBody::AddSnappy(ByteRange range) {
  FewBytes bytes(file_, range);
  BALLAST_ASSIGN_OR_RETURN(const auto length, TakeLength(bytes));
  if (!length.has_value()) return false;
  const uint64_t begin = size_;
  uint64_t left = range.size / 8192 + 16;
  while (bytes.left() > 0) {
    if (left-- == 0) return false;
    BALLAST_ASSIGN_OR_RETURN(const auto element, NextElement(bytes));
    if (!element.has_value() || element->size > *length - (size_ - begin)) {
      return false;
    }
    if (!element->back.has_value()) {
      if (element->size > bytes.left()) return false;
      AddPlain({bytes.at(), element->size});
      bytes.Skip(element->size);
      continue;
    }
    if (*element->back == 0 || *element->back > size_ - begin) return false;
    BALLAST_RETURN_IF_ERROR(AddCopy(*element->back, element->size));
  }
  return size_ - begin == *length;
}

std::vector<PageBody::Segment>::const_iterator PageBody::Find(
    uint64_t offset) const {
  return std::upper_bound(segments_.begin(), segments_.end(), offset,
                          [](uint64_t wanted, const Segment& segment) {
                            return wanted < segment.begin;
                          }) -
         1;
}

void PageBody::AddPieces(uint64_t offset, uint64_t size,
                         std::vector<FilePiece>* pieces) const {
  if (size == 0) return;
  for (auto segment = Find(offset); size > 0; ++segment) {
    const uint64_t skipped = offset - segment->begin;
    const uint64_t here = std::min(size, segment->piece.size - skipped);
    pieces->push_back(
        {segment->piece.offset + skipped, here, segment->piece.in_file});
    offset += here;
    size -= here;
  }
}

absl::Status PageBody::Read(uint64_t offset, uint64_t size, char* out) const {
  if (size == 0) return absl::OkStatus();
  for (auto segment = Find(offset); size > 0; ++segment) {
    const uint64_t skipped = offset - segment->begin;
    const uint64_t here = std::min(size, segment->piece.size - skipped);
    const FilePiece piece = {segment->piece.offset + skipped, here,
                             segment->piece.in_file};
    BALLAST_RETURN_IF_ERROR(ReadPieces(file_, {&piece, 1}, others_, out));
    offset += here;
    size -= here;
    out += here;
  }
  return absl::OkStatus();
}

}  // namespace ballast
