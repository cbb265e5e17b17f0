#include "server/delivery/sample_video_reader.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

std::string SizeOf(const IndexedVideo& video) {
  return absl::StrCat(video.frames, " frames of ", video.width, "x",
                      video.height, " pixels at ", video.fps, " a second");
}

// Everything that the plan follows from is as it was.
bool IsSame(const IndexedVideo& a, const IndexedVideo& b) {
  return a.frames == b.frames && a.width == b.width && a.height == b.height &&
         a.fps == b.fps && a.rotation == b.rotation;
}

}  // namespace

SampleVideoReader::SampleVideoReader(const v1::Model& model,
                                     const Resampling& resampling,
                                     int processes, DecoderCounters* counters)
    : model_(VideoModelOf(model)),
      resampling_(resampling),
      reader_(std::make_unique<VideoReader>(
          processes, DecoderProcess::Options{.counters = counters})) {}

absl::StatusOr<VideoPlan> SampleVideoReader::Plan(
    const IndexedVideo& video) const {
  if (!model_.has_value()) {
    return absl::InternalError("a video, and the model takes none");
  }
  absl::StatusOr<VideoPlan> plan = PlanIndexedVideo(*model_, video);
  if (plan.ok()) return plan;
  return absl::InternalError(plan.status().message());
}

absl::StatusOr<SampleVideoText> SampleVideoReader::Text(
    absl::Span<const IndexedVideo> videos) const {
  SampleVideoText text;
  for (const IndexedVideo& video : videos) {
    BALLAST_ASSIGN_OR_RETURN(const VideoPlan plan, Plan(video));
    text.texts.push_back(TextOfVideo(model_->rule, plan, model_->merge));
    AppendGrids(*model_, plan, &text.grids);
  }
  return text;
}

absl::Status SampleVideoReader::Read(const RawVideo& raw,
                                     const IndexedVideo& indexed,
                                     const VideoPlan& plan, Place place) const {
  const VideoBytes bytes = {raw.fd->get(), raw.offset, raw.size};
  BALLAST_ASSIGN_OR_RETURN(const VideoFacts facts, reader_->ReadFacts(bytes));
  const IndexedVideo found = IndexedVideoOf(facts);
  if (!IsSame(found, indexed)) {
    return absl::InvalidArgumentError(
        absl::StrCat(SizeOf(found), " instead of ", SizeOf(indexed),
                     "; has the file changed? index the source again"));
  }
  FrameForm form;
  form.width = plan.width;
  form.height = plan.height;
  form.resampling = resampling_;
  return reader_->ReadFrames(bytes, facts, plan.frames, form, place);
}

}  // namespace ballast
