#ifndef BALLAST_SERVER_CORPUS_INDEX_SOURCE_INDEX_H_
#define BALLAST_SERVER_CORPUS_INDEX_SOURCE_INDEX_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ballast {

// An image's size as its header states it.
struct ImageSize {
  uint32_t width;
  uint32_t height;
};
static_assert(sizeof(ImageSize) == 8);

// What the schedule needs of a sample.
struct IndexedSample {
  // Tokens but for image placeholders; vision start and end are counted.
  uint32_t text_tokens = 0;
  // Tokens that the loss counts.
  uint32_t label_tokens = 0;
  absl::Span<const ImageSize> images;
};

// The index of one source: where each sample lies, its image sizes and its text
// length. Immutable; thread-safe. Samples found bad when it was built are not
// in it.
class SourceIndex {
 public:
  virtual ~SourceIndex() = default;

  // Samples in the source.
  virtual uint64_t size() const = 0;

  // `ordinal` must be below size(). O(1); the spans live as long as the index.
  // Blocks on the disk where nobody has looked there before. Errors: DATA_LOSS
  // (the index is damaged), which says where.
  virtual absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const = 0;

  // To be called before sample() is, of many: what they need of the disk and of
  // memory is fetched all at once. Changes no answer.
  virtual void Prefetch(absl::Span<const uint64_t> /*ordinals*/) const {}

  // 32 hexadecimal digits over all that sample() can answer: equal for equal
  // data on every machine, wherever the files lie.
  virtual std::string digest() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_SOURCE_INDEX_H_
