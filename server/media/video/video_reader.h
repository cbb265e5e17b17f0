#ifndef BALLAST_SERVER_MEDIA_VIDEO_VIDEO_READER_H_
#define BALLAST_SERVER_MEDIA_VIDEO_VIDEO_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/loan_pool.h"
#include "proto/image/resample_weights.h"
#include "server/media/image/crop_maker.h"
#include "server/media/image/image.h"
#include "server/media/video/decoder/decoder_process.h"
#include "server/media/video/frame_table.h"
#include "server/media/video/video_plan.h"

namespace ballast {

// How the frames of a video are wanted.
struct FrameForm {
  // Of a frame, after turning it upright.
  uint32_t width = 0;
  uint32_t height = 0;
  Resampling resampling;
  // False: leaves frames as stored, whatever the header says of turning.
  bool apply_rotation = true;
};

// Most pixels that may be decoded for the frames of one video: 13 minutes of
// 1080p at 30 frames a second from a single key frame, which take about a
// minute.
inline constexpr uint64_t kMaxDecodedPixels = 50'000'000'000;

// Errors: a data fault (decoding `packets` packets of the video takes more than
// kMaxDecodedPixels).
absl::Status CheckDecodedPixels(uint64_t packets, const VideoFacts& facts);

// Reads the facts and frames of videos in processes of their own, at most
// `processes` at a time; further calls wait for one. No file can end the
// server, block it for good or make it take more memory than a few frames.
// Thread-safe; calls block.
class VideoReader {
 public:
  // At least one process; none is started before the first call.
  explicit VideoReader(int processes,
                       const DecoderProcess::Options& options = {});

  // Errors: as DecoderProcess::ReadFacts.
  absl::StatusOr<VideoFacts> ReadFacts(const VideoBytes& video);

  // Decodes frames `wanted`, ascending, of which some may be equal, and writes
  // each, resized, to `out`: height*width*3 bytes a frame, in the order of
  // `wanted`. Errors: as DecoderProcess::Decode, CheckDecodedPixels and
  // FrameResizer; INVALID_ARGUMENT (a frame that the video does not have, or
  // another size of `out`).
  absl::Status ReadFrames(const VideoBytes& video, const VideoFacts& facts,
                          absl::Span<const uint32_t> wanted,
                          const FrameForm& form, absl::Span<uint8_t> out);

  // As above, into separate places: `place(i)` is for wanted[i]. Places may be
  // one and the same, where only the errors are wanted.
  using Place = absl::FunctionRef<absl::Span<uint8_t>(size_t)>;
  absl::Status ReadFrames(const VideoBytes& video, const VideoFacts& facts,
                          absl::Span<const uint32_t> wanted,
                          const FrameForm& form, Place place);

  // ReadFacts, and if `check` accepts them ReadFrames, in one process that
  // lists the video's packets once. Errors: as both; of `check`.
  using Check = absl::FunctionRef<absl::Status(const VideoFacts&)>;
  absl::Status ReadChecked(const VideoBytes& video, Check check,
                           absl::Span<const uint32_t> wanted,
                           const FrameForm& form, Place place);

 private:
  // A process, and what the thread that uses it needs.
  struct Worker {
    explicit Worker(const DecoderProcess::Options& options)
        : process(options) {}
    DecoderProcess process;
    FrameResizer resizer;
  };
  using Workers = LoanPool<Worker>;

  // ReadFrames by `worker`; `is_listed` as in DecoderProcess::Decode.
  static absl::Status Decode(Worker* worker, const VideoBytes& video,
                             const VideoFacts& facts,
                             absl::Span<const uint32_t> wanted,
                             const FrameForm& form, Place out, bool is_listed);

  Workers workers_;
};

// Decodes a picture of a list that forms a video, which must have `width`
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

#endif  // BALLAST_SERVER_MEDIA_VIDEO_VIDEO_READER_H_
