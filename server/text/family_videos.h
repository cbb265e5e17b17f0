#ifndef BALLAST_SERVER_TEXT_FAMILY_VIDEOS_H_
#define BALLAST_SERVER_TEXT_FAMILY_VIDEOS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/image_plan/image_marks.h"
#include "server/text/conversation.h"
#include "server/text/family_tokens.h"
#include "server/text/video_text.h"

namespace ballast {

// The text of a video. Where a family takes its frames as it takes an image's
// tiles: for each the text before it and, between the family's marks of an
// image, its placeholders (InternVL: "Frame1: <img>…</img>\nFrame2: …").
// `has_own_id`: one run of a placeholder of its own (LLaVA-OneVision,
// LLaVA-Video).
ImagePieces VideoPiecesOf(const VideoText& video, const ImageMarks& marks,
                          bool has_own_id);

// The fault of a sample that LLaVA-Video's training code does not take: it has
// one video or images, in a conversation.
absl::Status CheckLlavaVideos(size_t images, size_t videos,
                              bool is_conversation);

// Writes the sentence of times (VideoText) where LLaVA-NeXT does: the first
// turn of the user loses its marks and begins with one of a video, a line feed,
// the sentence and a line feed. Errors: INVALID_ARGUMENT (another turn than a
// system turn before it, or none).
absl::Status AddTimes(absl::string_view times, std::vector<Turn>* turns);

// Replaces the marks of videos in the texts of one sample by image marks, and
// returns for each mark in order whether it was a video's. In a sample of
// videos alone `<image>` stands for a video, too. Texts without any mark stay
// as they are: images come first. Errors: INVALID_ARGUMENT (another number of
// marks than images or videos).
absl::StatusOr<std::vector<bool>> MarkFrames(
    size_t images, size_t videos, absl::Span<std::string* const> texts);

// For each video of an order that MarkFrames returned, the number of images
// behind it.
std::vector<uint32_t> ImagesBehindVideos(const std::vector<bool>& order);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_VIDEOS_H_
