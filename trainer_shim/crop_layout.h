#ifndef BALLAST_TRAINER_SHIM_CROP_LAYOUT_H_
#define BALLAST_TRAINER_SHIM_CROP_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "proto/job.pb.h"
#include "trainer_shim/patchify.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {

// INVALID_ARGUMENT naming the job's `field` unless `value` is in [least, most].
absl::Status CheckJobRange(absl::string_view field, uint64_t value,
                           uint64_t least, uint64_t most);

// The form in which a job's crops become tensors: a plain value derived from
// the job.
struct CropForm {
  // Rows of pixel_values. For tiles without their sides, which each batch has.
  PatchShape rows;
  // model.image_form is `tiles`. `tile`: the side of every crop; 0: crops
  // differ.
  bool tiles = false;
  uint32_t tile = 0;
  // Batches list which crops belong to one image: jobs with a
  // model.image_family.
  bool lists_crops = false;
  // In addition, batches list the size of each crop: in every form except merge
  // order. If the list is absent, a consumer of batches knows that patches are
  // in merge order.
  bool lists_sizes = false;
  // In addition, batches list the size of each image before resizing: rule
  // `pinpoints`.
  bool lists_images = false;
  // The job's model takes videos (model.video) separately from its images: in
  // merge order or, if `tiles`, with one frame for each tile of `tile` pixels.
  bool videos = false;
  // The size of a dummy image, in patches and in pixels.
  CropSides dummy = {2, 2, 28, 28};
};

// The form of a job's crops. Errors: INVALID_ARGUMENT (a number out of its
// range or an unknown form, naming the field, the value and the range; a model
// of videos in another form than merge order, or with images that pass through
// encoded).
absl::StatusOr<CropForm> GetCropForm(const v1::Job& job);

// The record of a dummy image: one crop.
ImageRecord GetDummyImage(const CropForm& form);

// The rows of pixel_values of n crops, and the tensors that list the crops. A
// plain value.
struct CropLayout {
  // Rows of pixel_values; for tiles with the sides of the largest crop.
  PatchShape shape;
  bool tiles = false;
  bool lists_crops = false;  // as in CropForm
  bool lists_sizes = false;
  bool lists_images = false;
  // [n+1]: row in which each crop begins; ends with the number of rows.
  std::vector<int64_t> row_offsets;

  // The rest is empty unless lists_crops.
  // [n, 2]: height and width, in pixels, if lists_sizes.
  std::vector<int64_t> imgs_sizes;
  // [images]: crops of each image, of which a dummy image is the last.
  std::vector<int64_t> crops_per_image;
  // [images, 2]: height and width before resizing, if lists_images. For a dummy
  // image, its crop's.
  std::vector<int64_t> image_sizes;
  // Padded patches. [n, 2]: height and width in patches.
  std::vector<int64_t> spatial_shapes;
  // Padded patches. [n, padded_rows]: 1 for patches, 0 for padding.
  std::vector<uint8_t> pixel_attention_mask;

  int64_t rows() const { return row_offsets.empty() ? 0 : row_offsets.back(); }
  int64_t num_crops() const {
    return row_offsets.empty() ? 0 : row_offsets.size() - 1;
  }
};

// Lays out crops, given in packing order; their grids have no side of 0. The
// first crop of each sample is at the start of its payload (ImageRecord.data
// 0), which separates it from the crops of the sample before. Errors:
// INVALID_ARGUMENT, naming the crop, the value found and the value wanted: a
// grid that is not a multiple of the merge size, more patches than a padded
// crop has, more than 2^31-1 rows.
absl::StatusOr<CropLayout> LayOutCrops(absl::Span<const ImageRecord> crops,
                                       const CropForm& form);

// Consecutive frames of a video that become patches together:
// model.temporal_patch of them or, at the end of a video, fewer; the last is
// then repeated.
struct TemporalPatch {
  uint32_t first = 0;  // its first frame, as a number among the rank's frames
  FrameRun frames;
  CropSides sides;
  int64_t first_row = 0;  // in pixel_values_videos
};

// The videos of a rank, in packing order, and the tensors that list them.
// Separate from the images of the same samples, as the models take them. A
// plain value.
struct VideoLayout {
  // The job's model takes videos: batches list them, even if there are none.
  // The rest is empty if not.
  bool listed = false;
  // As for images: image_grid_thw is video_grid_thw, cu_seqlens has a segment
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

// Lays out the videos among `records`, which are the records of all images and
// frames of the rank's samples in packing order. The first record of each
// sample is at the start of its payload (ImageRecord.data 0). Errors:
// INVALID_ARGUMENT, naming the frame, the value found and the value wanted: a
// job whose model takes no videos, a frame that passed through encoded, frames
// of a video that differ or are not one after the other, a number of frames
// that does not fit its temporal patches, a grid that is not a multiple of the
// merge size, or does not fit a tile; as LayOutVision.
absl::StatusOr<VideoLayout> LayOutVideos(absl::Span<const ImageRecord> records,
                                         const CropForm& form);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CROP_LAYOUT_H_
