#include "server/text/family_videos.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "server/corpus/data_fault.h"
#include "server/text/conversation.h"

namespace ballast {

ImagePieces VideoPiecesOf(const VideoText& video, const ImageMarks& marks,
                          bool has_own_id) {
  ImagePieces pieces;
  if (has_own_id) {
    pieces.push_back({video.run_tokens, "", /*is_video=*/true});
    return pieces;
  }
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

absl::Status CheckLlavaVideos(size_t images, size_t videos,
                              bool is_conversation) {
  const auto fault = [](const auto&... pieces) {
    return DataFaultError(absl::StrCat(
        pieces...,
        "; LLaVA-Video's training code takes one video a sample, or "
        "images, in a conversation"));
  };
  if (videos == 0) return absl::OkStatus();
  if (videos > 1) return fault(videos, " videos");
  if (images > 0) return fault("a video beside ", images, " images");
  if (!is_conversation) return fault("a video in a document");
  return absl::OkStatus();
}

absl::Status AddTimes(absl::string_view times, std::vector<Turn>* turns) {
  size_t first = 0;
  while (first < turns->size() && (*turns)[first].role == Role::kSystem) {
    ++first;
  }
  if (first == turns->size() || (*turns)[first].role != Role::kUser) {
    return DataFaultError(
        "the conversation does not begin with a turn of the user, where "
        "model.video.time_instruction puts the times of a video's frames");
  }
  std::string& text = (*turns)[first].text;
  text = absl::StrCat(
      kVideoMark, "\n", times, "\n",
      absl::StrReplaceAll(text, {{kImageMark, ""}, {kVideoMark, ""}}));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<bool>> MarkFrames(
    size_t images, size_t videos, absl::Span<std::string* const> texts) {
  std::vector<bool> order;
  for (std::string* text : texts) {
    std::string marked;
    absl::string_view rest = *text;
    while (true) {
      const size_t image = rest.find(kImageMark);
      const size_t video = rest.find(kVideoMark);
      if (image == rest.npos && video == rest.npos) break;
      const bool is_video = video < image;
      order.push_back(is_video || images == 0);
      absl::StrAppend(&marked, rest.substr(0, std::min(image, video)),
                      kImageMark);
      rest.remove_prefix(is_video ? video + kVideoMark.size()
                                  : image + kImageMark.size());
    }
    absl::StrAppend(&marked, rest);
    *text = std::move(marked);
  }
  if (order.empty()) {
    order.assign(images, false);
    order.resize(images + videos, true);
    return order;
  }
  const size_t video_marks = std::count(order.begin(), order.end(), true);
  const size_t image_marks = order.size() - video_marks;
  if (image_marks == images && video_marks == videos) return order;
  return DataFaultError(absl::StrCat(
      "text has ", image_marks, " ", kImageMark, " and ", video_marks, " ",
      kVideoMark, " marks, the sample has ", images, " images and ", videos,
      " videos; each mark stands for one"));
}

std::vector<uint32_t> ImagesBehindVideos(const std::vector<bool>& order) {
  std::vector<uint32_t> behind;
  auto images =
      static_cast<uint32_t>(std::count(order.begin(), order.end(), false));
  for (const bool is_video : order) {
    if (is_video) {
      behind.push_back(images);
    } else {
      --images;
    }
  }
  return behind;
}

}  // namespace ballast
