#ifndef BALLAST_SERVER_CORPUS_INDEX_IMAGE_FACTS_H_
#define BALLAST_SERVER_CORPUS_INDEX_IMAGE_FACTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/corpus/index/image_mark.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// The facts that an index holds of several images, one column each.
struct ImageFactsView {
  absl::Span<const ImageSize> sizes;
  absl::Span<const ImageMark> marks;
  // One for each image, or empty: none is clean.
  absl::Span<const uint64_t> content_hashes;
};

struct ImageFacts {
  std::vector<ImageSize> sizes;
  std::vector<ImageMark> marks;
  // As long as the others, or shorter: 0 stands for the rest.
  std::vector<uint64_t> content_hashes;

  void Append(const ImageFactsView& more) {
    if (!more.content_hashes.empty()) {
      content_hashes.resize(sizes.size());
      content_hashes.insert(content_hashes.end(), more.content_hashes.begin(),
                            more.content_hashes.end());
    }
    sizes.insert(sizes.end(), more.sizes.begin(), more.sizes.end());
    marks.insert(marks.end(), more.marks.begin(), more.marks.end());
  }
  ImageFactsView view() const { return {sizes, marks, content_hashes}; }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_IMAGE_FACTS_H_
