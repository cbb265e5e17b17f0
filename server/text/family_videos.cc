#include "server/text/family_videos.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/text/conversation.h"

namespace ballast {

ImagePieces FramePiecesOf(const VideoText& video, const ImageMarks& marks) {
  ImagePieces pieces;
  std::string text;  // between two runs
  for (uint32_t run = 0; run < video.runs; ++run) {
    if (!video.before.empty()) text += video.before[run];
    text += marks.before;
    pieces.push_back({0, std::exchange(text, marks.after)});
    pieces.push_back({video.run_tokens, ""});
  }
  pieces.push_back({0, text});
  std::erase_if(pieces, [](const ImageTextPiece& piece) {
    return piece.placeholders == 0 && piece.text.empty();
  });
  return pieces;
}

absl::Status MarkFrames(size_t images, size_t videos,
                        absl::Span<std::string* const> texts) {
  size_t image_marks = 0;
  size_t video_marks = 0;
  for (std::string* text : texts) {
    std::string marked;
    absl::string_view rest = *text;
    while (true) {
      const size_t image = rest.find(kImageMark);
      const size_t video = rest.find(kVideoMark);
      if (image == rest.npos && video == rest.npos) break;
      const bool is_video = video < image;
      if (is_video || images == 0) {
        ++video_marks;
      } else if (video_marks != 0) {
        return absl::InvalidArgumentError(
            "a video stands before an image; this model takes both in the "
            "order of the text, and videos are delivered behind images: put "
            "images first");
      } else {
        ++image_marks;
      }
      absl::StrAppend(&marked, rest.substr(0, std::min(image, video)),
                      kImageMark);
      rest.remove_prefix(is_video ? video + kVideoMark.size()
                                  : image + kImageMark.size());
    }
    absl::StrAppend(&marked, rest);
    *text = std::move(marked);
  }
  if (image_marks + video_marks == 0 ||
      (image_marks == images && video_marks == videos)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "text has ", image_marks, " ", kImageMark, " and ", video_marks, " ",
      kVideoMark, " marks, the sample has ", images, " images and ", videos,
      " videos; each mark stands for one"));
}

}  // namespace ballast
