#ifndef BALLAST_SERVER_MODEL_MODEL_VIDEOS_H_
#define BALLAST_SERVER_MODEL_MODEL_VIDEOS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "server/media/video/frame_table.h"
#include "server/media/video/video_plan.h"
#include "server/sample/source_index.h"

namespace ballast {

// The configured model as far as videos go: the rule of its profile with the
// limits of model.video and the model's patches. nullopt: the model takes no
// videos (GetVideoRule). `model` is complete.
std::optional<VideoModel> GetVideoModel(const v1::Model& model);

// The same for a released model with its defaults; nullopt for other names than
// VideoModelNames(), which is in alphabetical order.
std::optional<VideoModel> FindVideoModel(
    absl::string_view name, VideoSampling sampling = VideoSampling::kOwn);
std::vector<std::string> VideoModelNames();

// Everything that PlanIndexedVideo and the text of a video follow from besides
// the facts, one KEY=VALUE a line: the rule and its limits, not the name of the
// profile. Empty where GetVideoModel is.
std::string VideoPlanKey(const v1::Model& model);

// The facts of a video as an index keeps them, without a clip; facts.times are
// its FrameTimes.
StreamFacts GetIndexedVideo(const VideoFacts& facts);

// Decides among the frames of an interval where a model draws them (InternVL's
// own rule): the same for the same facts and clip, on every machine and in
// every epoch.
uint64_t SeedOfVideo(const StreamFacts& video);

// Plans a video from its entry in the index: the same for the index, the
// schedule and the block. `times` are of this video alone. `plan.frames` are
// those that travel. Errors: as PlanVideo; INVALID_ARGUMENT also for frames
// that are larger than any image, and for numbers that a schedule cannot hold;
// INTERNAL (fewer times than the video has).
absl::StatusOr<VideoPlan> PlanIndexedVideo(const VideoModel& model,
                                           const StreamFacts& video,
                                           FrameTimes times);
// Of a video of constant rate, or a list of pictures.
inline absl::StatusOr<VideoPlan> PlanIndexedVideo(const VideoModel& model,
                                                  const StreamFacts& video) {
  return PlanIndexedVideo(model, video, {});
}

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_MODEL_VIDEOS_H_
