#ifndef BALLAST_SERVER_COMMAND_PREVIEW_GALLERY_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_GALLERY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "server/job/job_setup.h"

namespace ballast {

// Facts of a sample for the gallery, from its index alone.
struct GallerySample {
  uint64_t ordinal = 0;
  uint32_t tokens = 0;
  uint32_t label_tokens = 0;
  uint32_t images = 0;  // and videos
  uint64_t pixels = 0;  // of all images, as stored
  double cost = 0;      // of all modules
  // Its text fills batch.max_tokens, with batch.on_too_long: truncate_text.
  bool truncated = false;
};

// What the gallery shows of a source. An empty filter passes everything.
struct GalleryFilter {
  // "", "nothing_learnt", "truncated", "images" or "text"
  std::string only;
  uint64_t least_tokens = 0;
  uint64_t most_tokens = UINT64_MAX;
  // "", in the order of the index; "tokens" or "cost": largest first
  std::string order;
  uint64_t from = 0;  // of those that pass
};

// Numbers of samples by a quantity: counts[i] of values from i * width on,
// below (i + 1) * width. At most 24 counts. Pure.
struct Histogram {
  uint64_t width = 1;
  std::vector<uint64_t> counts;
};
Histogram MakeHistogram(const std::vector<uint64_t>& values);

// The parts of the preview that show many samples. Thread-safe.
class Gallery {
 public:
  // Samples of a source that are measured, from the first on.
  static constexpr uint64_t kMostMeasured = 200'000;
  static constexpr size_t kShown = 24;

  // `job` is not owned.
  explicit Gallery(const OpenedJob* job) : job_(job) {}

  // {"samples": of the source, "measured", "matches", "shown": [{ordinal,
  // tokens, label_tokens, images, pixels, cost, truncated}], "histograms":
  // {"tokens", "images", "pixels": {width, counts}}}: the first kShown samples
  // from filter.from on, histograms over all that were measured. Blocks on the
  // disk at the first call for a source. Errors: NOT_FOUND (no such source),
  // INVALID_ARGUMENT (a filter), as SourceIndex::sample and MeasureSample.
  absl::StatusOr<std::string> PageJson(absl::string_view source,
                                       const GalleryFilter& filter);

  // {"name", "text": its first 240 bytes, "turned": an image is stored in
  // another orientation, "transparent": an image may have transparent pixels,
  // "fault": why it cannot be read}. Errors: NOT_FOUND (no such sample).
  absl::StatusOr<std::string> CardJson(absl::string_view source,
                                       uint64_t ordinal) const;

  // The sample's first image, of at most 192 pixels a side, as a PNG file.
  // Errors: NOT_FOUND (no such sample, or it has no image), data faults.
  absl::StatusOr<std::string> Thumbnail(absl::string_view source,
                                        uint64_t ordinal) const;

  // {"sources": [{name, samples, bad, causes: [{cause, records, example}],
  // records: [{cause, file, offset, key, reason}], listed}]}: what the indexes
  // leave out; of each source the first 200 records with `cause`, or of any
  // cause if it is empty.
  std::string BadJson(absl::string_view cause) const;

 private:
  using Samples = std::shared_ptr<const std::vector<GallerySample>>;
  absl::StatusOr<int> Find(absl::string_view source) const;
  absl::StatusOr<Samples> Measure(int source);

  const OpenedJob* const job_;
  Mutex mutex_;
  std::map<int, Samples> measured_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_GALLERY_H_
