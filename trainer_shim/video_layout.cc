#include "trainer_shim/video_layout.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/align.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

absl::Status OfFrame(size_t frame, absl::string_view fault) {
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule: video frame ", frame, " of the packed shard ", fault));
}

uint64_t StrideOf(const ImageRecord& frame) {
  return AlignUp(PixelBytes(frame), kImageAlignment);
}

// Whether `frame` is of the video of the record before. A sample's first record
// has data 0, and its images lie before its videos, so a video of the next
// sample is told from this one.
bool Continues(const ImageRecord& before, const ImageRecord& frame) {
  return IsFrame(before) && frame.image == before.image && frame.data != 0;
}

// Far above any model: a table of frames holds strides in 32 bits.
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
  if (frame.data != before.data + StrideOf(before)) {
    return OfFrame(number,
                   absl::StrCat("lies at byte ", frame.data, ", wanted ",
                                before.data + StrideOf(before),
                                ", behind the one before in its video"));
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
      patch.frames.stride = StrideOf(video);
      patch.sides = {video.grid_h, video.grid_w, video.height, video.width};
      patch.first_row = row;
      row += form.tiles ? 1 : int64_t{video.grid_h} * video.grid_w;
    }
    layout.row_offsets.push_back(row);
  }
  return layout;
}

}  // namespace ballast
