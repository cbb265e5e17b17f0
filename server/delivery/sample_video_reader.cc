#include "server/delivery/sample_video_reader.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/video/frame_table.h"
#include "server/model/model_videos.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

std::string DescribeSize(const StreamFacts& video) {
  return absl::StrCat(video.frames, " frames of ", video.width, "x",
                      video.height, " pixels at ", video.fps, " a second");
}

// Whether everything that the plan depends on is equal.
bool IsSame(const StreamFacts& a, const StreamFacts& b) {
  return a.frames == b.frames && a.width == b.width && a.height == b.height &&
         a.fps == b.fps && a.rotation == b.rotation &&
         !((a.flags ^ b.flags) &
           (StreamFacts::kIsList | StreamFacts::kHasTimes));
}

// Makes the frames of a list of pictures.
absl::Status ReadList(const RawMedium& raw, const StreamFacts& indexed,
                      const VideoPlan& plan, DecodeBudget* budget,
                      ImageDecoder* decoder, SampleVideoReader::Place place) {
  const auto changed = [](const auto&... pieces) {
    return DataFaultError(absl::StrCat(
        pieces..., "; has the sample changed? index the source again"));
  };
  if (!(indexed.flags & StreamFacts::kIsList) ||
      raw.pictures.size() != indexed.frames) {
    return changed(raw.pictures.size(), " pictures instead of ", indexed.frames,
                   " frames");
  }
  for (size_t i = 0; i < plan.frames.size(); ++i) {
    const std::string& picture = raw.pictures[plan.frames[i]];
    const std::string frame = absl::StrCat("frame ", plan.frames[i]);
    const absl::StatusOr<uint64_t> needs = decoder->Needs(picture);
    if (!needs.ok()) return Annotate(needs.status(), frame);
    BALLAST_ASSIGN_OR_RETURN(
        const DecodeBudget::Lease memory,
        budget->Take(*needs + ListedFrameBytes(indexed.width, indexed.height,
                                               plan,
                                               decoder->options().resampling)));
    BALLAST_RETURN_IF_ERROR(
        Annotate(MakeListedFrame(picture, indexed.width, indexed.height, plan,
                                 decoder, place(i)),
                 frame));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t VideoDecodeBytes(const StreamFacts& video) {
  constexpr uint64_t kProcess = uint64_t{64} << 20;
  // Maximum number of frames that a codec refers to, plus the one being
  // decoded.
  constexpr uint64_t kKept = 17;
  // Planes of 4:2:0 in two bytes a value; the RGB slots, and a turned frame.
  constexpr uint64_t kPixelBytes = kKept * 3 + 3 * 3 + 3;
  return kProcess + kPixelBytes * video.width * video.height;
}

SampleVideoReader::SampleVideoReader(const v1::Model& model,
                                     const Resampling& resampling,
                                     int processes, DecodeBudget* budget,
                                     HelperCounters* counters)
    : model_(GetVideoModel(model)),
      resampling_(resampling),
      budget_(budget),
      reader_(std::make_unique<VideoReader>(
          processes, DecoderProcess::Options{.counters = counters})) {}

absl::StatusOr<VideoPlan> SampleVideoReader::Plan(const StreamFacts& video,
                                                  FrameTimes times) const {
  if (!model_.has_value()) {
    return absl::InternalError("a video, and the model takes none");
  }
  absl::StatusOr<VideoPlan> plan = PlanIndexedVideo(*model_, video, times);
  if (plan.ok()) return plan;
  return absl::InternalError(plan.status().message());
}

absl::Status SampleVideoReader::Read(const RawMedium& raw,
                                     const StreamFacts& indexed,
                                     const VideoPlan& plan,
                                     ImageDecoder* pictures,
                                     Place place) const {
  if (raw.fd == nullptr) {
    return ReadList(raw, indexed, plan, budget_, pictures, place);
  }
  BALLAST_ASSIGN_OR_RETURN(const DecodeBudget::Lease memory,
                           budget_->Take(VideoDecodeBytes(indexed)));
  const VideoBytes bytes = {raw.fd->get(), raw.offset, raw.size};
  FrameForm form;
  form.width = plan.width;
  form.height = plan.height;
  form.resampling = resampling_;
  const absl::Status read = reader_->ReadChecked(
      bytes,
      [&](const VideoFacts& facts) {
        const StreamFacts found = GetIndexedVideo(facts);
        if (IsSame(found, indexed)) return absl::OkStatus();
        return DataFaultError(absl::StrCat(
            DescribeSize(found), " instead of ", DescribeSize(indexed),
            "; has the file changed? index the source again"));
      },
      plan.frames, form, place);
  // The decoder read the file after its sample was checked. If the file changed
  // meanwhile, damage says nothing about the sample.
  BALLAST_RETURN_IF_ERROR(CheckUnchanged(raw));
  return read;
}

}  // namespace ballast
