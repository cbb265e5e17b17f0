#ifndef BALLAST_SERVER_DELIVERY_SAMPLE_VIDEO_READER_H_
#define BALLAST_SERVER_DELIVERY_SAMPLE_VIDEO_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/helper_process.h"
#include "proto/image/resample_weights.h"
#include "proto/model.pb.h"
#include "server/delivery/decode_budget.h"
#include "server/media/image/image.h"
#include "server/media/video/video_plan.h"
#include "server/media/video/video_reader.h"
#include "server/sample/medium.h"
#include "server/sample/source_index.h"

namespace ballast {

// The videos of samples: their plans from the index, and their frames, which
// separate processes decode (VideoReader). Thread-safe.
class SampleVideoReader {
 public:
  // `model` is complete. At most `processes` videos are decoded at a time; no
  // process is started before the first. `budget` has the memory for a video
  // while it is decoded. Neither it nor `counters`, which may be null, is
  // owned.
  SampleVideoReader(const v1::Model& model, const Resampling& resampling,
                    int processes, DecodeBudget* budget,
                    HelperCounters* counters = nullptr);

  // Errors: INTERNAL (the index has a video that cannot be planned, which the
  // schedule would have reported).
  absl::StatusOr<VideoPlan> Plan(const StreamFacts& video,
                                 FrameTimes times = {}) const;

  // Decodes the planned frames, resizes each and writes it to place(i).
  // `pictures` decodes the pictures of a video that is a list of them, and may
  // be null for any other video. Blocks on the file and the process. Errors: a
  // data fault (damaged, or another video than the index has), and as
  // VideoReader::ReadFrames and DecodeBudget::Take.
  using Place = absl::FunctionRef<absl::Span<uint8_t>(size_t)>;
  absl::Status Read(const RawMedium& raw, const StreamFacts& indexed,
                    const VideoPlan& plan, ImageDecoder* pictures,
                    Place place) const;

 private:
  const std::optional<VideoModel> model_;
  const Resampling resampling_;
  DecodeBudget* const budget_;
  const std::unique_ptr<VideoReader> reader_;
};

// Memory that decoding a video of such frames takes, in its process and here:
// an estimate from the frames that a decoder keeps, with two bytes a value. A
// process is ended at video_decoder::kMaxMemory.
uint64_t VideoDecodeBytes(const StreamFacts& video);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SAMPLE_VIDEO_READER_H_
