#include "server/storage/range_plan.h"

#include <algorithm>

namespace ballast {

std::vector<ByteRange> Coalesce(std::vector<ByteRange> wanted) {
  std::sort(wanted.begin(), wanted.end(),
            [](const ByteRange& a, const ByteRange& b) {
              return a.offset < b.offset;
            });
  std::vector<ByteRange> ranges;
  for (const ByteRange& range : wanted) {
    if (range.size == 0) continue;
    if (ranges.empty() || range.offset > ranges.back().end() + kGapBytes) {
      ranges.push_back(range);
      continue;
    }
    ByteRange& last = ranges.back();
    last.size = std::max(last.end(), range.end()) - last.offset;
  }
  return ranges;
}

std::vector<ByteRange> SplitIntoParts(ByteRange range) {
  std::vector<ByteRange> parts;
  for (uint64_t at = 0; at < range.size; at += kPartBytes) {
    parts.push_back({range.offset + at, std::min(kPartBytes, range.size - at)});
  }
  return parts;
}

ByteRange RangeToKeep(ByteRange range, uint64_t object_size) {
  if (range.size >= kSmallBytes) return range;
  const uint64_t begin = range.offset / kBlockBytes * kBlockBytes;
  const uint64_t end = (range.end() + kBlockBytes - 1) / kBlockBytes;
  return {begin, std::min(end * kBlockBytes, object_size) - begin};
}

ByteRange NextWindow(ByteRange last, ByteRange wanted, uint64_t object_size) {
  const bool follows = last.size > 0 && wanted.offset >= last.offset &&
                       wanted.offset <= last.end();
  uint64_t size = follows ? std::min(last.size * 2, kMaxWindow) : kMinWindow;
  size = std::max(size, wanted.size);
  return {wanted.offset, std::min(size, object_size - wanted.offset)};
}

}  // namespace ballast
