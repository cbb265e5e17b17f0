#include "server/corpus/index/probe_videos.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/limits.h"
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

// The part of a video in a tar file fits the video, of `pictures` pictures.
absl::Status CheckPart(const JsonVideo& part, size_t pictures) {
  const auto fault = [](const auto&... pieces) {
    return absl::InvalidArgumentError(absl::StrCat(pieces...));
  };
  if (pictures == 0) {
    if (!part.frames.empty()) {
      return fault(
          "its part has the pictures of a list, and the tar a video "
          "file; wanted members KEY.V.P.jpg");
    }
    if (part.has_sample_fps) {
      return fault("`sample_fps` beside a video file; wanted `fps`");
    }
    return absl::OkStatus();
  }
  if (!part.frames.empty() && part.frames.size() != pictures) {
    return fault("its part names ", part.frames.size(),
                 " pictures, and the tar has ", pictures);
  }
  if (part.has_raw_fps) {
    return fault(
        "`raw_fps` of a list of pictures is not supported; wanted "
        "`sample_fps`");
  }
  if (part.start.has_value() || part.end.has_value() ||
      (part.fps > 0 && !part.has_sample_fps)) {
    return fault(
        "a clip or `fps` beside a video's pictures is not read by "
        "qwen-vl-utils; wanted `sample_fps`, and the pictures of the "
        "clip");
  }
  return absl::OkStatus();
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
      "qwen2_5_vl, qwen3_vl, qwen3_5_vl, internvl3, llava_onevision or "
      "llava_video");
}

absl::StatusOr<std::vector<JsonVideo>> ReadClips(
    RawSample::TextFormat format, absl::string_view text,
    absl::Span<const size_t> pictures) {
  std::vector<JsonVideo> clips;
  if (pictures.empty() || format != RawSample::TextFormat::kConversation) {
    return clips;
  }
  BALLAST_ASSIGN_OR_RETURN(clips, ReadVideoParts(text));
  if (!clips.empty() && clips.size() != pictures.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(clips.size(), " parts of type video and ", pictures.size(),
                     " videos; wanted as many"));
  }
  for (size_t i = 0; i < clips.size(); ++i) {
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckPart(clips[i], pictures[i]), absl::StrCat("video ", i)));
  }
  return clips;
}

ListProbe::ListProbe(const JsonVideo& named) {
  video_.sample_fps = named.fps;
  video_.flags = IndexedVideo::kIsList;
}

absl::Status ListProbe::Add(absl::string_view name, const ImageSize& size) {
  ++video_.frames;
  ++video_.key_frames;
  if (video_.width == 0) {
    video_.width = size.width;
    video_.height = size.height;
  }
  if (size.width == video_.width && size.height == video_.height) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ", size.width, "x", size.height,
      " pixels, and the video's first picture has ", video_.width, "x",
      video_.height, "; wanted one size for all pictures of a video"));
}

absl::StatusOr<IndexedVideo> ProbeVideo(const File& file, uint64_t offset,
                                        uint64_t size, const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash) {
  BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options));
  BALLAST_RETURN_IF_ERROR(CheckClip(named));
  FileView view(&file);
  // Loads one version, for the hash and for the facts.
  if (view.object() != nullptr && size <= kMaxSampleBytes) {
    BALLAST_RETURN_IF_ERROR(view.Load({{offset, size}}));
  }
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
