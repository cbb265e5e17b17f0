#ifndef BALLAST_TRAINER_SHIM_VIDEO_LAYOUT_H_
#define BALLAST_TRAINER_SHIM_VIDEO_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {

// Consecutive frames of a video that become patches together: as many as
// model.temporal_patch or, at the end of a video, fewer, the last of which is
// then repeated.
struct TemporalPatch {
  uint32_t first = 0;  // its first frame, as a number among the rank's frames
  FrameRun frames;
  CropSides sides;
  int64_t first_row = 0;  // in pixel_values_videos
};

// The videos of a rank, in packing order, and the tensors that list them. Apart
// from the images of the same samples, as the models take them. A plain value.
struct VideoLayout {
  // The job's model takes videos: batches list them, even if there are none.
  // The rest is empty if not.
  bool listed = false;
  // As of images: image_grid_thw is video_grid_thw, cu_seqlens has a segment
  // for each temporal patch.
  VisionLayout vision;
  // [videos + 1]: row of pixel_values_videos in which each video begins; ends
  // with their number. A patch is a row or, for tiles, a frame.
  std::vector<int64_t> row_offsets;
  // [videos]: seconds from one temporal patch to the next.
  std::vector<float> second_per_grid_ts;
  // In the order of their rows.
  std::vector<TemporalPatch> patches;

  int64_t num_videos() const { return second_per_grid_ts.size(); }
  // Rows of pixel_values_videos.
  int64_t rows() const { return listed ? row_offsets.back() : 0; }
};

// Lays out the videos among `records`, those of all images and frames of the
// rank's samples in packing order. The first record of each sample lies at the
// start of its payload (ImageRecord.data 0). Errors: INVALID_ARGUMENT, naming
// the frame, the value found and the one wanted: a job whose model takes no
// videos, a frame that travelled encoded, frames of a video that differ or do
// not lie one after the other, a number of frames that is not that of its
// temporal patches, a grid that is not a multiple of the merge size, or of a
// tile's; as LayOutVision.
absl::StatusOr<VideoLayout> LayOutVideos(absl::Span<const ImageRecord> records,
                                         const CropForm& form);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_VIDEO_LAYOUT_H_
