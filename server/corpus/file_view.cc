#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "server/corpus/file.h"

namespace ballast {

absl::Status FileView::Load(const std::vector<ByteRange>& ranges) {
  if (file_->object() == nullptr) return absl::OkStatus();
  loaded_ = true;
  for (const ByteRange& range : ranges) {
    const bool is_here = std::any_of(
        ranges_.begin(), ranges_.end(),
        [&](const auto& loaded) { return loaded->range().Covers(range); });
    if (is_here) continue;
    BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const StoredRange> fetched,
                             file_->object()->Fetch(range, owner_, from_));
    ranges_.push_back(std::move(fetched));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const StoredRange>> FileView::RangeAt(
    ByteRange range) const {
  for (const std::shared_ptr<const StoredRange>& loaded : ranges_) {
    if (loaded->range().Covers(range)) return loaded;
  }
  if (!loaded_ || range.size == 0) return nullptr;
  return file_->object()->Fetch(range, owner_, from_);
}

absl::Status FileView::ReadAt(uint64_t offset, uint64_t size, char* out) const {
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const StoredRange> range,
                           RangeAt({offset, size}));
  return range == nullptr ? file_->ReadAt(offset, size, out, from_)
                          : range->ReadAt(offset, size, out);
}

absl::StatusOr<std::string> FileView::ReadAt(uint64_t offset,
                                             uint64_t size) const {
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const StoredRange> range,
                           RangeAt({offset, size}));
  if (range == nullptr) return file_->ReadAt(offset, size, from_);
  std::string bytes(size, '\0');
  BALLAST_RETURN_IF_ERROR(range->ReadAt(offset, size, bytes.data()));
  return bytes;
}

void FileView::ReadSoon(ByteRange range) const {
  file_->ReadSoon(range);
  for (const std::shared_ptr<const StoredRange>& loaded : ranges_) {
    if (loaded->range().Covers(range)) loaded->ReadSoon(range);
  }
}

bool FileView::IsInCache() const {
  return !ranges_.empty() &&
         std::all_of(ranges_.begin(), ranges_.end(),
                     [](const auto& loaded) { return loaded->IsInCache(); });
}

}  // namespace ballast
