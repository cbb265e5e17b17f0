#ifndef BALLAST_SERVER_CORPUS_INDEX_IMAGE_FACTS_H_
#define BALLAST_SERVER_CORPUS_INDEX_IMAGE_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/corpus/index/image_mark.h"
#include "server/corpus/index/indexed_video.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// The facts that an index holds of several images, one column each, and of
// videos.
struct ImageFactsView {
  absl::Span<const ImageSize> sizes;
  absl::Span<const ImageMark> marks;
  // One for each image, or empty: none is clean.
  absl::Span<const uint64_t> content_hashes;
  absl::Span<const IndexedVideo> videos = {};
  // For each video: the number of its sample, ascending. Empty: all are of the
  // first.
  absl::Span<const uint64_t> video_samples = {};
  // One for each video, or empty.
  absl::Span<const uint64_t> video_hashes = {};
};

struct ImageFacts {
  std::vector<ImageSize> sizes;
  std::vector<ImageMark> marks;
  // As long as the others, or shorter: 0 stands for the rest.
  std::vector<uint64_t> content_hashes;
  std::vector<IndexedVideo> videos;
  std::vector<uint64_t> video_samples;  // as in ImageFactsView
  std::vector<uint64_t> video_hashes;   // as content_hashes

  // Appends the facts of samples whose first one has number `sample` here.
  void Append(const ImageFactsView& more, uint64_t sample) {
    if (!more.content_hashes.empty()) {
      content_hashes.resize(sizes.size());
      content_hashes.insert(content_hashes.end(), more.content_hashes.begin(),
                            more.content_hashes.end());
    }
    sizes.insert(sizes.end(), more.sizes.begin(), more.sizes.end());
    marks.insert(marks.end(), more.marks.begin(), more.marks.end());
    if (!more.video_hashes.empty()) {
      video_hashes.resize(videos.size());
      video_hashes.insert(video_hashes.end(), more.video_hashes.begin(),
                          more.video_hashes.end());
    }
    for (size_t i = 0; i < more.videos.size(); ++i) {
      videos.push_back(more.videos[i]);
      video_samples.push_back(
          sample + (more.video_samples.empty() ? 0 : more.video_samples[i]));
    }
  }
  ImageFactsView view() const {
    return {sizes, marks, content_hashes, videos, video_samples, video_hashes};
  }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_IMAGE_FACTS_H_
