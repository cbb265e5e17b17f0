#ifndef BALLAST_SERVER_DATA_INDEX_INDEX_CHECK_H_
#define BALLAST_SERVER_DATA_INDEX_INDEX_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/data/file_source.h"
#include "server/data/index/index_file.h"
#include "server/data/index/index_options.h"
#include "server/data/journal.h"
#include "server/sample/source_index.h"

namespace ballast {

// A part of a check, done and recorded as a whole: the images to check of the
// index's records [begin, end).
struct CheckUnit {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t images = 0;
  uint64_t bytes = 0;  // of these images

  friend bool operator==(const CheckUnit&, const CheckUnit&) = default;
};

// A unit ends with the record that reaches either bound. A check that is killed
// loses at most one unit a thread.
struct CheckUnitSize {
  uint64_t bytes = uint64_t{64} << 20;
  uint64_t images = 1024;
};

// Returns whether `index --check` still has to read an image.
inline bool NeedsCheck(ImageMark mark) {
  return mark.is_marked() && mark.check() == ImageCheckResult::kUnchecked;
}

// Cuts the check of `index`, which Verify has found sound, into units in order
// of records; a unit has at least one image. Depends on the index alone.
std::vector<CheckUnit> PlanCheck(const IndexFile& index,
                                 const CheckUnitSize& size = {});

// Checks a whole JPEG that the index has marked, like CheckScan
// (server/media/image/sound_scan.h): OK if JPEG engines make libjpeg's planes
// of it. Called from several threads at once.
using ImageCheck = std::function<absl::Status(absl::string_view jpeg)>;

struct CheckOptions {
  ImageCheck check;
  Shard shard;
  CheckUnitSize unit_size;
  // Images checked at the same time. At least 1.
  uint32_t threads = 1;
  // May be empty. Called from any thread, one call at a time: before the first
  // unit and after each.
  std::function<void(const IndexProgress&)> progress;
};

// An image that is not clean.
struct UncleanImage {
  uint64_t record = 0;  // the sample's number in the index
  uint32_t image = 0;   // in the sample, from 0
  std::string reason;   // with file and sample
};

struct CheckReport {
  static constexpr size_t kMaxListed = 100;

  // Images of the shard, and of these the ones that an earlier run has checked.
  uint64_t images = 0;
  uint64_t resumed = 0;
  uint64_t clean = 0;
  uint64_t unsound = 0;
  uint64_t changed = 0;
  // Those that this run has found, in order of record; at most kMaxListed.
  std::vector<UncleanImage> unclean;
};

// Reads the images of a shard that the index of `source` has marked and that
// have not been checked. Records what it finds in the shard's journal, next to
// the index, unit by unit; units that the journal has already are not checked
// again. Does not change the index: MergeChecks does. Blocks until all is
// checked. Errors: UNAVAILABLE (some samples could not be read: how many, and
// the reason of the first; all others are recorded); FAILED_PRECONDITION
// (another process works on the shard); DATA_LOSS (the index is damaged); as
// File::Write.
absl::StatusOr<CheckReport> CheckImages(const FileSource& source,
                                        const CheckOptions& options);

// Writes the results in the journals of all shards to the index at `path`, as
// WriteIndex does, and removes its journals. The index is the same, byte for
// byte, whatever the number of shards. An index whose images are all checked is
// left as it is. `size` is a check's size. Returns the marks of the index.
// Blocks on the disk. Errors: FAILED_PRECONDITION (no journal of this index; a
// shard is missing or not at its end, naming it); as IndexFile::Open,
// IndexFile::Verify and WriteIndex.
absl::StatusOr<ImageMarkCounts> MergeChecks(const std::string& path,
                                            const CheckUnitSize& size = {});

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_INDEX_CHECK_H_
