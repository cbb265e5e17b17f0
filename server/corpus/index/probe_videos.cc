#include "server/corpus/index/probe_videos.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/raw_video.h"

namespace ballast {

absl::StatusOr<IndexedVideo> ProbeVideo(const File& file, uint64_t offset,
                                        uint64_t size, const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash) {
  if (!options.read_video) {
    return absl::InvalidArgumentError(
        "video is not supported for this model.profile; wanted qwen2_vl, "
        "qwen2_5_vl, qwen3_vl or qwen3_5_vl");
  }
  if (named.start.has_value() && named.end.has_value() &&
      *named.end <= *named.start) {
    return absl::InvalidArgumentError(
        absl::StrCat("a clip from ", *named.start, " s to ", *named.end,
                     " s; wanted an end after the start"));
  }
  const FileView view(&file);
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      view.ReadAt(offset, std::min<uint64_t>(size, ImagesHash::kHeadBytes)));
  hash->Add(size, head);
  BALLAST_ASSIGN_OR_RETURN(const RawVideo video, OpenVideo(view, offset, size));
  BALLAST_ASSIGN_OR_RETURN(IndexedVideo facts, options.read_video(video));
  facts.sample_fps = named.fps;
  if (named.start.has_value()) {
    facts.start = *named.start;
    facts.flags |= IndexedVideo::kHasStart;
  }
  if (named.end.has_value()) {
    facts.end = *named.end;
    facts.flags |= IndexedVideo::kHasEnd;
  }
  return facts;
}

}  // namespace ballast
