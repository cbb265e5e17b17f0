#include "server/corpus/parquet/partial_bytes.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

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

}  // namespace ballast
