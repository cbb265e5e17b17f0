#ifndef BALLAST_SERVER_CORPUS_INDEX_MEDIA_ORDER_H_
#define BALLAST_SERVER_CORPUS_INDEX_MEDIA_ORDER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// The number of images that stand behind a video in its sample's text, in bits
// 8 to 31 of IndexedVideo.flags. 0 but for models that take images and videos
// in the order of the text (InternVL), and in indexes from before: all images
// then stand before all videos.
inline constexpr uint32_t kImagesBehindShift = 8;

inline uint32_t ImagesBehind(const IndexedVideo& video) {
  return video.flags >> kImagesBehindShift;
}

inline void SetImagesBehind(uint32_t images, IndexedVideo* video) {
  constexpr uint32_t kOthers = (1u << kImagesBehindShift) - 1;
  video->flags = (video->flags & kOthers) | images << kImagesBehindShift;
}

// Walks the images and videos of a sample in the order in which schedules and
// blocks have them. Both keep their own order, whatever the flags say.
//
//   for (MediaOrder order(images, videos); order.Next();) {
//     if (order.is_video()) … videos[order.number()] …
class MediaOrder {
 public:
  MediaOrder(uint64_t images, absl::Span<const IndexedVideo> videos)
      : images_(images), videos_(videos) {}

  // Moves to the next, at first to the first. False: there is none.
  bool Next() {
    is_video_ = video_ < videos_.size() &&
                uint64_t{ImagesBehind(videos_[video_])} >= images_ - image_;
    if (is_video_) {
      number_ = video_++;
      return true;
    }
    if (image_ == images_) return false;
    number_ = image_++;
    return true;
  }

  bool is_video() const { return is_video_; }
  // The place of the image among images, or of the video among videos.
  uint64_t number() const { return number_; }

 private:
  const uint64_t images_;
  const absl::Span<const IndexedVideo> videos_;
  uint64_t image_ = 0;  // next ones
  uint64_t video_ = 0;
  bool is_video_ = false;
  uint64_t number_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_MEDIA_ORDER_H_
