#include "server/schedule/job_videos.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

absl::Status NotCarried(absl::string_view setting, absl::string_view wanted) {
  return absl::UnimplementedError(absl::StrCat(
      "a source has videos, which ", setting, " does not carry; wanted ",
      wanted, ", or sources without videos"));
}

}  // namespace

bool HaveVideos(const std::vector<const SourceIndex*>& indexes) {
  return std::any_of(
      indexes.begin(), indexes.end(),
      [](const SourceIndex* index) { return index->num_videos() != 0; });
}

absl::Status ResolveVideos(const std::vector<const SourceIndex*>& indexes,
                           v1::Config* config) {
  v1::Model& model = *config->mutable_model();
  if (!HaveVideos(indexes)) {
    model.clear_video();
    return absl::OkStatus();
  }
  if (!VideoModelOf(model).has_value()) {
    return NotCarried(
        absl::StrCat("model.profile ",
                     model.profile().empty() ? "''" : model.profile()),
        absl::StrCat("one of ", absl::StrJoin(VideoModelNames(), ", ")));
  }
  if (model.decode() == v1::Model::DECODE_DEVICE) {
    return NotCarried("model.decode: device", "model.decode: host");
  }
  if (config->balance().placement() == v1::Balance::PLACEMENT_SPLIT) {
    return NotCarried("balance.placement: split", "balance.placement: paired");
  }
  v1::Model::Video& video = *model.mutable_video();
  if (video.sampling() == v1::Model::Video::SAMPLING_UNSPECIFIED) {
    video.set_sampling(v1::Model::Video::SAMPLING_QWEN_VL_UTILS);
  }
  return absl::OkStatus();
}

}  // namespace ballast
