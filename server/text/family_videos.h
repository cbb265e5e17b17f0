#ifndef BALLAST_SERVER_TEXT_FAMILY_VIDEOS_H_
#define BALLAST_SERVER_TEXT_FAMILY_VIDEOS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/image_plan/image_marks.h"
#include "server/text/family_tokens.h"
#include "server/text/video_text.h"

namespace ballast {

// The text of a video whose frames a family takes as it takes an image's tiles:
// for each frame the text before it and, between the family's marks of an
// image, its placeholders (InternVL: "Frame1: <img>…</img>\nFrame2: …").
ImagePieces FramePiecesOf(const VideoText& video, const ImageMarks& marks);

// Replaces the marks of videos in the texts of one sample by image marks, which
// then stand for its images and behind them for its videos. In a sample of
// videos alone `<image>` stands for a video, too. Texts without any mark stay
// as they are. Errors: INVALID_ARGUMENT (another number of marks than images or
// videos; a video before an image, whose pixels would stand in another order
// than their places in the text).
absl::Status MarkFrames(size_t images, size_t videos,
                        absl::Span<std::string* const> texts);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_VIDEOS_H_
