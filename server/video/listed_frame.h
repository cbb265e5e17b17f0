#ifndef BALLAST_SERVER_VIDEO_LISTED_FRAME_H_
#define BALLAST_SERVER_VIDEO_LISTED_FRAME_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/image/image.h"
#include "server/video/video_plan.h"

namespace ballast {

// Decodes a picture of a list that stands for a video, which must have `width`
// x `height` pixels, and resizes it to the plan's frames: with the resampling
// of the decoder's options, and before that with Pillow's where the plan has a
// first size. `out` holds a frame, height*width*3 bytes. Errors: as
// ImageDecoder::Decode and Resize; INVALID_ARGUMENT (another size).
absl::Status MakeListedFrame(absl::string_view picture, uint32_t width,
                             uint32_t height, const VideoPlan& plan,
                             ImageDecoder* decoder, absl::Span<uint8_t> out);

// An upper bound of the memory that MakeListedFrame takes beyond
// ImageDecoder::Decode.
uint64_t ListedFrameBytes(uint32_t width, uint32_t height,
                          const VideoPlan& plan, const Resampling& resampling);

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_LISTED_FRAME_H_
