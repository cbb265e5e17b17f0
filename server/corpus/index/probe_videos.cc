#include "server/corpus/index/probe_videos.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/raw_video.h"

namespace ballast {
namespace {

absl::Status CheckClip(const JsonVideo& named) {
  if (!named.start.has_value() || !named.end.has_value() ||
      *named.end > *named.start) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a clip from ", *named.start, " s to ", *named.end,
                   " s; wanted an end after the start"));
}

// The facts of an open video, with its clip.
absl::StatusOr<IndexedVideo> FactsOf(const RawVideo& video,
                                     const JsonVideo& named,
                                     const IndexOptions& options) {
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

}  // namespace

absl::Status CheckTakesVideos(const IndexOptions& options) {
  if (options.read_video) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "video is not supported for this model.profile; wanted qwen2_vl, "
      "qwen2_5_vl, qwen3_vl or qwen3_5_vl");
}

absl::StatusOr<std::vector<JsonVideo>> ReadClips(RawSample::TextFormat format,
                                                 absl::string_view text,
                                                 size_t videos) {
  std::vector<JsonVideo> clips;
  if (videos == 0 || format != RawSample::TextFormat::kConversation) {
    return clips;
  }
  BALLAST_ASSIGN_OR_RETURN(clips, ReadVideoParts(text));
  for (const JsonVideo& clip : clips) {
    if (clip.frames.empty()) continue;
    return absl::InvalidArgumentError(
        "video is not supported as a list of pictures in a tar file; wanted a "
        "member KEY.mp4, .avi, .webm, .mov or .mkv");
  }
  if (clips.empty() || clips.size() == videos) return clips;
  return absl::InvalidArgumentError(
      absl::StrCat(clips.size(), " parts of type video and ", videos,
                   " videos; wanted as many"));
}

absl::StatusOr<IndexedVideo> ProbeVideo(const File& file, uint64_t offset,
                                        uint64_t size, const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash) {
  BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options));
  BALLAST_RETURN_IF_ERROR(CheckClip(named));
  const FileView view(&file);
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      view.ReadAt(offset, std::min<uint64_t>(size, ImagesHash::kHeadBytes)));
  hash->Add(size, head);
  BALLAST_ASSIGN_OR_RETURN(const RawVideo video, OpenVideo(view, offset, size));
  return FactsOf(video, named, options);
}

absl::StatusOr<IndexedVideo> ProbeVideo(absl::string_view bytes,
                                        const std::string& name,
                                        const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash) {
  BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options));
  BALLAST_RETURN_IF_ERROR(CheckClip(named));
  hash->Add(bytes.size(), bytes.substr(0, ImagesHash::kHeadBytes));
  BALLAST_ASSIGN_OR_RETURN(const RawVideo video, VideoInMemory(bytes, name));
  return FactsOf(video, named, options);
}

}  // namespace ballast
