#include "trainer_shim/crop_layout.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"

namespace ballast {

absl::Status CheckJobRange(absl::string_view field, uint64_t value,
                           uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "job: ", field, " is ", value, ", wanted ", least, " to ", most));
}

namespace {

using Model = v1::Model;

// Far above any model. These limits keep sums of sizes within 64 bits, and keep
// a dummy image, which is made without a block, small.
constexpr uint64_t kMaxPatch = 1024;
constexpr uint64_t kMaxMerge = 64;
constexpr uint64_t kMaxTokenSide = 1024;  // pixels: patch times merge
constexpr uint64_t kMaxTemporalPatch = 16;
constexpr uint64_t kMaxTile = 1 << 14;
constexpr uint64_t kMaxPatchesOfACrop = 1 << 20;
constexpr uint64_t kMaxDummySide = 1 << 12;  // pixels
constexpr uint64_t kMaxRows = std::numeric_limits<int32_t>::max();

absl::Status CheckNumbers(const v1::Job& job) {
  const Model& model = job.model();
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("model.patch", model.patch(), 1, kMaxPatch));
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("model.merge", model.merge(), 1, kMaxMerge));
  BALLAST_RETURN_IF_ERROR(CheckJobRange("model.patch times model.merge",
                                        uint64_t{model.patch()} * model.merge(),
                                        1, kMaxTokenSide));
  BALLAST_RETURN_IF_ERROR(CheckJobRange(
      "model.temporal_patch", model.temporal_patch(), 1, kMaxTemporalPatch));
  const v1::Job::CropShape& shape = job.crop_shape();
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("crop_shape.margin", shape.margin(), 0, model.patch() - 1));
  return CheckJobRange("crop_shape.tile", shape.tile(), 0, kMaxTile);
}

absl::Status OfCrop(size_t crop, absl::string_view fault) {
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule: image ", crop, " of the packed shard has ", fault));
}

absl::Status CheckCrop(const ImageRecord& crop, size_t number,
                       const CropLayout& layout) {
  const PatchShape& shape = layout.shape;
  if (layout.tiles) return absl::OkStatus();
  if (crop.grid_h % shape.merge != 0 || crop.grid_w % shape.merge != 0) {
    return OfCrop(number, absl::StrCat("grid ", crop.grid_h, "x", crop.grid_w,
                                       ", wanted multiples of model.merge ",
                                       shape.merge));
  }
  if (shape.padded_rows != 0 &&
      uint64_t{crop.grid_h} * crop.grid_w > shape.padded_rows) {
    return OfCrop(number, absl::StrCat("grid ", crop.grid_h, "x", crop.grid_w,
                                       ", wanted at most ", shape.padded_rows,
                                       " patches (crop_shape.max_patches)"));
  }
  return absl::OkStatus();
}

// Whether frames of videos are crops in the same way as images' (InternVL).
bool FramesAreCrops(const Model& model) {
  return model.image_form() == Model::IMAGE_FORM_TILES &&
         model.image_family().rule() == v1::ImageFamily::RULE_TILE_GRID;
}

// Whether frames of videos are tiles, separate from the crops of images
// (LLaVA-OneVision).
bool FramesAreTiles(const Model& model) {
  return model.image_form() == Model::IMAGE_FORM_TILES &&
         model.image_family().rule() == v1::ImageFamily::RULE_PINPOINTS;
}

// Checks that videos are packed as the Qwen family's models take them, or as
// tiles.
absl::Status CheckVideo(const Model& model, const CropForm& form) {
  if (!model.has_video()) return absl::OkStatus();
  if (form.lists_crops && !FramesAreCrops(model) && !FramesAreTiles(model)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job: model.video with model.image_form ", model.image_form(),
        " and image family '", model.image_family().name(),
        "'; videos are packed for Qwen's models, in merge order, and for "
        "InternVL and LLaVA-OneVision, as tiles: leave out model.video"));
  }
  if (form.videos && form.tiles) {
    BALLAST_RETURN_IF_ERROR(
        CheckJobRange("model.temporal_patch with videos of tiles",
                      model.temporal_patch(), 1, 1));
    BALLAST_RETURN_IF_ERROR(
        CheckJobRange("crop_shape.tile with videos", form.tile, 1, kMaxTile));
  }
  if (model.decode() == Model::DECODE_DEVICE) {
    return absl::InvalidArgumentError(
        "job: model.video with model.decode device; frames of videos do not "
        "travel encoded: set model.decode to host");
  }
  return absl::OkStatus();
}

void ListCrops(absl::Span<const ImageRecord> crops, CropLayout* layout) {
  const uint32_t padded = layout->shape.padded_rows;
  layout->pixel_attention_mask.reserve(crops.size() * padded);
  for (size_t i = 0; i < crops.size(); ++i) {
    const ImageRecord& crop = crops[i];
    if (layout->lists_sizes) {
      layout->imgs_sizes.insert(layout->imgs_sizes.end(),
                                {crop.height, crop.width});
    }
    // Each sample's first crop begins where its payload begins.
    if (i == 0 || crop.data == 0 || crop.image != crops[i - 1].image) {
      layout->crops_per_image.push_back(0);
      if (layout->lists_images) {
        const bool has = crop.image_height != 0;
        layout->image_sizes.insert(layout->image_sizes.end(),
                                   {has ? crop.image_height : crop.height,
                                    has ? crop.image_width : crop.width});
      }
    }
    ++layout->crops_per_image.back();
    if (padded == 0) continue;
    layout->spatial_shapes.insert(layout->spatial_shapes.end(),
                                  {crop.grid_h, crop.grid_w});
    const uint64_t patches = uint64_t{crop.grid_h} * crop.grid_w;
    auto& mask = layout->pixel_attention_mask;
    mask.insert(mask.end(), patches, 1);
    mask.insert(mask.end(), padded - patches, 0);
  }
}

}  // namespace

absl::StatusOr<CropForm> GetCropForm(const v1::Job& job) {
  BALLAST_RETURN_IF_ERROR(CheckNumbers(job));
  const Model& model = job.model();
  const v1::Job::CropShape& given = job.crop_shape();
  CropForm form;
  form.rows.patch = model.patch();
  form.rows.merge = model.merge();
  form.rows.temporal_patch = model.temporal_patch();
  form.lists_crops = ListsCrops(model);
  form.lists_sizes = ListsCropSizes(model);
  switch (model.image_form()) {
    case Model::IMAGE_FORM_UNSPECIFIED:
    case Model::IMAGE_FORM_MERGE_ORDER:
      break;
    case Model::IMAGE_FORM_TILES:
      form.tiles = true;
      form.tile = given.tile();
      break;
    case Model::IMAGE_FORM_RASTER:
      form.rows.merge = 1;
      break;
    case Model::IMAGE_FORM_PADDED:
      BALLAST_RETURN_IF_ERROR(CheckJobRange("crop_shape.max_patches",
                                            given.max_patches(), 1,
                                            kMaxPatchesOfACrop));
      BALLAST_RETURN_IF_ERROR(
          CheckJobRange("model.temporal_patch with image_form padded",
                        model.temporal_patch(), 1, 1));
      form.rows.merge = 1;
      form.rows.channels_last = true;
      form.rows.padded_rows = given.max_patches();
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("job: model.image_form is ", model.image_form(),
                       ", wanted one that this build knows, 1 to 4: the server "
                       "is newer than this shim"));
  }
  form.lists_images =
      model.image_family().rule() == v1::ImageFamily::RULE_PINPOINTS;
  form.videos = model.has_video() && !FramesAreCrops(model);
  BALLAST_RETURN_IF_ERROR(CheckVideo(model, form));
  CropSides& dummy = form.dummy;
  dummy.grid_h =
      given.dummy_grid_h() != 0 ? given.dummy_grid_h() : model.merge();
  dummy.grid_w =
      given.dummy_grid_w() != 0 ? given.dummy_grid_w() : model.merge();
  const uint64_t most = kMaxDummySide / model.patch();
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("crop_shape.dummy_grid_h", dummy.grid_h, 1, most));
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("crop_shape.dummy_grid_w", dummy.grid_w, 1, most));
  dummy.height = dummy.grid_h * model.patch() + given.margin();
  dummy.width = dummy.grid_w * model.patch() + given.margin();
  return form;
}

ImageRecord GetDummyImage(const CropForm& form) {
  ImageRecord dummy = {};
  dummy.grid_t = 1;
  dummy.grid_h = form.dummy.grid_h;
  dummy.grid_w = form.dummy.grid_w;
  dummy.height = form.dummy.height;
  dummy.width = form.dummy.width;
  return dummy;
}

absl::StatusOr<CropLayout> LayOutCrops(absl::Span<const ImageRecord> crops,
                                       const CropForm& form) {
  CropLayout layout;
  layout.shape = form.rows;
  layout.tiles = form.tiles;
  layout.lists_crops = form.lists_crops;
  layout.lists_sizes = form.lists_sizes;
  layout.lists_images = form.lists_images;
  if (form.tiles) {
    layout.shape.tile_h = layout.shape.tile_w = form.tile;
    for (const ImageRecord& crop : crops) {
      layout.shape.tile_h = std::max(layout.shape.tile_h, crop.height);
      layout.shape.tile_w = std::max(layout.shape.tile_w, crop.width);
    }
  }
  layout.row_offsets.reserve(crops.size() + 1);
  layout.row_offsets.push_back(0);
  for (size_t i = 0; i < crops.size(); ++i) {
    BALLAST_RETURN_IF_ERROR(CheckCrop(crops[i], i, layout));
    const uint64_t row =
        layout.rows() + layout.shape.GetRows(crops[i].grid_h, crops[i].grid_w);
    if (row > kMaxRows) {
      return OfCrop(
          i, absl::StrCat("rows up to ", row, ", wanted at most ", kMaxRows));
    }
    layout.row_offsets.push_back(row);
  }
  if (form.lists_crops) ListCrops(crops, &layout);
  return layout;
}

namespace {

absl::Status OfFrame(size_t frame, absl::string_view fault) {
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule: video frame ", frame, " of the packed shard ", fault));
}

uint64_t GetStride(const ImageRecord& frame) {
  return AlignUp(PixelBytes(frame), kImageAlignment);
}

// Whether `frame` is of the video of the record before. A sample's first record
// has data 0, and its images come before its videos, so a video of the next
// sample is not taken for this one.
bool Continues(const ImageRecord& before, const ImageRecord& frame) {
  return IsFrame(before) && frame.image == before.image && frame.data != 0;
}

// Far above any model: a table of frames has strides of 32 bits.
constexpr uint64_t kMaxFrameBytes = uint64_t{1} << 31;

absl::Status CheckFirst(const ImageRecord& frame, size_t number,
                        const CropForm& form) {
  const PatchShape& shape = form.rows;
  if (frame.encoded_bytes != 0) {
    return OfFrame(number,
                   absl::StrCat("travels encoded, in ", frame.encoded_bytes,
                                " bytes, wanted pixels"));
  }
  if (PixelBytes(frame) > kMaxFrameBytes) {
    return OfFrame(number,
                   absl::StrCat("has ", PixelBytes(frame),
                                " bytes, wanted at most ", kMaxFrameBytes));
  }
  if (form.tiles) {
    if (frame.height <= form.tile && frame.width <= form.tile) {
      return absl::OkStatus();
    }
    return OfFrame(number, absl::StrCat("has ", frame.width, "x", frame.height,
                                        " pixels, wanted at most a tile's, ",
                                        form.tile, " (crop_shape.tile)"));
  }
  if (frame.grid_h % shape.merge != 0 || frame.grid_w % shape.merge != 0) {
    return OfFrame(
        number,
        absl::StrCat("has grid ", frame.grid_h, "x", frame.grid_w,
                     ", wanted multiples of model.merge ", shape.merge));
  }
  return absl::OkStatus();
}

absl::Status CheckNext(const ImageRecord& before, const ImageRecord& frame,
                       size_t number) {
  if (frame.grid_t != before.grid_t || frame.grid_h != before.grid_h ||
      frame.grid_w != before.grid_w || frame.height != before.height ||
      frame.width != before.width || frame.encoded_bytes != 0 ||
      frame.seconds_per_patch != before.seconds_per_patch) {
    return OfFrame(number, "differs from the one before in its video");
  }
  if (frame.data != before.data + GetStride(before)) {
    return OfFrame(number,
                   absl::StrCat("begins at byte ", frame.data, ", wanted ",
                                before.data + GetStride(before),
                                ", after the one before in its video"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VideoLayout> LayOutVideos(absl::Span<const ImageRecord> records,
                                         const CropForm& form) {
  VideoLayout layout;
  layout.listed = form.videos;
  const uint32_t temporal = form.tiles ? 1 : form.rows.temporal_patch;
  std::vector<ImageRecord> videos;  // the first frame of each
  std::vector<size_t> begins;       // its number
  size_t frames = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const ImageRecord& frame = records[i];
    if (!IsFrame(frame)) continue;
    if (!form.videos) return OfFrame(0, "belongs to a job without model.video");
    if (i > 0 && Continues(records[i - 1], frame)) {
      BALLAST_RETURN_IF_ERROR(CheckNext(records[i - 1], frame, frames));
    } else {
      BALLAST_RETURN_IF_ERROR(CheckFirst(frame, frames, form));
      videos.push_back(frame);
      begins.push_back(frames);
      layout.second_per_grid_ts.push_back(frame.seconds_per_patch);
    }
    ++frames;
  }
  if (!form.videos) return layout;
  begins.push_back(frames);
  BALLAST_ASSIGN_OR_RETURN(layout.vision, LayOutVision(videos));
  layout.row_offsets = {0};
  for (size_t v = 0; v < videos.size(); ++v) {
    const ImageRecord& video = videos[v];
    const uint64_t count = begins[v + 1] - begins[v];
    const uint64_t patches = (count + temporal - 1) / temporal;
    if (patches != video.grid_t) {
      return OfFrame(
          begins[v],
          absl::StrCat("begins a video of ", count, " frames and ",
                       video.grid_t, " temporal patches, wanted ", patches,
                       " (model.temporal_patch ", temporal, ")"));
    }
    int64_t row = layout.row_offsets.back();
    for (size_t i = begins[v]; i < begins[v + 1]; i += temporal) {
      TemporalPatch& patch = layout.patches.emplace_back();
      patch.first = i;
      patch.frames.count = std::min<size_t>(temporal, begins[v + 1] - i);
      patch.frames.stride = GetStride(video);
      patch.sides = {video.grid_h, video.grid_w, video.height, video.width};
      patch.first_row = row;
      row += form.tiles ? 1 : int64_t{video.grid_h} * video.grid_w;
    }
    layout.row_offsets.push_back(row);
  }
  return layout;
}

}  // namespace ballast
