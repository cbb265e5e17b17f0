#ifndef BALLAST_SERVER_STORAGE_RANGE_PLAN_H_
#define BALLAST_SERVER_STORAGE_RANGE_PLAN_H_

#include <cstdint>
#include <vector>

#include "server/storage/span.h"

namespace ballast {

// Which ranges of an object to request. Pure functions.

// Bytes of one request: large enough that the time until the first byte hardly
// counts, small enough that a row group is read by several requests at once.
inline constexpr uint64_t kPartBytes = uint64_t{8} << 20;
// Bytes between two wanted ranges that are rather read than skipped.
inline constexpr uint64_t kGapBytes = uint64_t{256} << 10;
// A wanted range shorter than this is read with its neighbours, in blocks.
inline constexpr uint64_t kSmallBytes = uint64_t{64} << 10;
inline constexpr uint64_t kBlockBytes = uint64_t{256} << 10;
// A window's least and most bytes.
inline constexpr uint64_t kMinWindow = uint64_t{64} << 10;
inline constexpr uint64_t kMaxWindow = kPartBytes;

// Ranges in ascending order that cover `wanted` (in any order, not empty), with
// gaps of at most kGapBytes read too.
std::vector<ByteRange> Coalesce(std::vector<ByteRange> wanted);

// `range` in parts of at most kPartBytes, the last of which may be shorter.
std::vector<ByteRange> SplitIntoParts(ByteRange range);

// The range to keep for a sample at `range`: itself, or the aligned blocks
// around it if it is small, so that lines of text share requests.
ByteRange RangeToKeep(ByteRange range, uint64_t object_size);

// The next window, for a read of `wanted` that the window `last` does not
// cover: twice as long as `last` if it continues where that ended, else the
// least; never shorter than `wanted`, never past the object's end.
ByteRange NextWindow(ByteRange last, ByteRange wanted, uint64_t object_size);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_RANGE_PLAN_H_
