#include "server/data/jsonl/video_json.h"

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/jsonl/media_root.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

bool HasKey(const element& part, const char* name) {
  element value;
  return part[name].get(value) == SUCCESS && !value.is_null();
}

// The number of the first key of `names` that is there.
absl::StatusOr<std::optional<double>> ReadSeconds(
    const element& part, std::initializer_list<const char*> names,
    const char* medium = "video") {
  for (const char* name : names) {
    element value;
    if (part[name].get(value) != SUCCESS || value.is_null()) continue;
    double number = 0;
    if (value.get(number) != SUCCESS || !(number >= 0) ||
        !std::isfinite(number)) {
      return DataFaultError(absl::StrCat("`", name, "` of a ", medium,
                                         " is no number of at least 0"));
    }
    return number;
  }
  return std::optional<double>();
}

// The paths of a list of pictures.
absl::StatusOr<std::vector<std::string>> ReadFrames(const array& list) {
  std::vector<std::string> frames;
  for (const element item : list) {
    std::string_view path;
    if (item.get(path) != SUCCESS) {
      return DataFaultError(
          "a video is a list of other things than paths; wanted a path, or the "
          "paths of its frames");
    }
    const std::string lower = absl::AsciiStrToLower(std::string(path));
    for (const char* ending : {".mp4", ".avi", ".webm", ".mov", ".mkv"}) {
      if (!absl::EndsWith(lower, ending)) continue;
      return DataFaultError(absl::StrCat(
          "a video is a list with \"", Printable(lower),
          "\" in it; a list holds the pictures of one video, and several "
          "videos are a list `videos`"));
    }
    if (frames.size() == kMaxImages) {
      return DataFaultError(
          absl::StrCat("a video of over ", kMaxImages, " pictures"));
    }
    frames.emplace_back(path);
  }
  if (frames.empty()) {
    return DataFaultError("a video is an empty list");
  }
  return frames;
}

// A path, or a list of them; nullopt if it is neither.
absl::StatusOr<std::optional<NamedMedium>> ReadVideo(const element& value) {
  NamedMedium video;
  std::string_view path;
  array frames;
  if (value.get(path) == SUCCESS) {
    video.path = std::string(path);
  } else if (value.get(frames) == SUCCESS) {
    BALLAST_ASSIGN_OR_RETURN(video.frames, ReadFrames(frames));
  } else {
    return std::optional<NamedMedium>();
  }
  return std::optional<NamedMedium>(std::move(video));
}

}  // namespace

absl::StatusOr<NamedMedium> ReadVideoPart(const element& part) {
  for (const char* name :
       {"nframes", "num_frames", "min_frames", "max_frames", "min_pixels",
        "max_pixels", "total_pixels", "resized_height", "resized_width"}) {
    if (!HasKey(part, name)) continue;
    return DataFaultError(
        absl::StrCat("`", name,
                     "` of one video is not supported; set it for "
                     "all in model.video"));
  }
  NamedMedium video;
  // Columnar sets have all keys in all parts, most of them null.
  for (const auto& found : {part["video"], part["video_url"]["url"],
                            part["video_url"], part["path"]}) {
    element value;
    if (found.get(value) != SUCCESS || value.is_null()) continue;
    BALLAST_ASSIGN_OR_RETURN(std::optional<NamedMedium> named,
                             ReadVideo(value));
    if (named.has_value()) video = *std::move(named);
    break;
  }
  video.has_sample_fps = HasKey(part, "sample_fps");
  video.has_raw_fps = HasKey(part, "raw_fps");
  // Members of a tar file are named by no part: their pictures are known later.
  const bool is_member = video.frames.empty() && video.path.empty();
  const bool of_pictures =
      !video.frames.empty() || (is_member && video.has_sample_fps);
  // qwen-vl-utils passes over them, and the frames would not be those meant.
  const auto unread = [&](const char* name, absl::string_view wanted) {
    return DataFaultError(absl::StrCat(
        "`", name, "` beside a video's ", of_pictures ? "pictures" : "path",
        " is not read by qwen-vl-utils; ", wanted));
  };
  if (!of_pictures) {
    if (video.has_sample_fps) return unread("sample_fps", "wanted `fps`");
    BALLAST_ASSIGN_OR_RETURN(video.start,
                             ReadSeconds(part, {"video_start", "start"}));
    BALLAST_ASSIGN_OR_RETURN(video.end,
                             ReadSeconds(part, {"video_end", "end"}));
  } else {
    if (HasKey(part, "fps")) return unread("fps", "wanted `sample_fps`");
    for (const char* name : {"video_start", "start", "video_end", "end"}) {
      if (HasKey(part, name)) return unread(name, "name the pictures of it");
    }
    if (video.has_raw_fps) {
      return DataFaultError(
          "`raw_fps` of a list of pictures is not supported; wanted "
          "`sample_fps`");
    }
  }
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> fps,
                           ReadSeconds(part, {"fps", "sample_fps"}));
  video.fps = fps.value_or(0);
  return video;
}

absl::StatusOr<bool> ReadVideoKeys(const object& root,
                                   std::vector<NamedMedium>* videos) {
  bool any = false;
  for (const char* key : {"video", "videos"}) {
    element value;
    if (root.at_key(key).get(value) != SUCCESS || value.is_null()) continue;
    array none;
    if (any && value.get(none) == SUCCESS && none.size() == 0) continue;
    if (any) {
      return DataFaultError("keys `video` and `videos`; wanted one of the two");
    }
    any = true;
    std::vector<element> named = {value};
    array list;
    if (std::string_view(key) == "videos" && value.get(list) == SUCCESS) {
      named.clear();
      for (const element item : list) named.push_back(item);
    }
    for (const element& each : named) {
      BALLAST_ASSIGN_OR_RETURN(std::optional<NamedMedium> video,
                               ReadVideo(each));
      if (!video.has_value()) {
        return DataFaultError(absl::StrCat(
            "`", key, "` is neither a string nor a list of strings"));
      }
      BALLAST_RETURN_IF_ERROR(AddVideo(*std::move(video), videos));
    }
  }
  return any;
}

absl::Status AddVideo(NamedMedium video, std::vector<NamedMedium>* videos) {
  if (videos->size() == kMaxVideos) {
    return DataFaultError(absl::StrCat("over ", kMaxVideos, " videos"));
  }
  size_t pictures = video.frames.size();
  for (const NamedMedium& other : *videos) pictures += other.frames.size();
  if (pictures > kMaxImages) {
    return DataFaultError(
        absl::StrCat("videos of over ", kMaxImages, " pictures in all"));
  }
  if (video.frames.empty()) {
    BALLAST_RETURN_IF_ERROR(CheckMediaPath("video", video.path));
  }
  for (const std::string& path : video.frames) {
    BALLAST_RETURN_IF_ERROR(CheckMediaPath("video", path));
  }
  videos->push_back(std::move(video));
  return absl::OkStatus();
}

absl::StatusOr<NamedMedium> ReadAudioPart(const element& part) {
  NamedMedium clip;
  // Columnar sets have all keys in all parts, most of them null.
  for (const auto& found : {part["audio"], part["audio_url"]["url"],
                            part["audio_url"], part["path"]}) {
    element value;
    std::string_view path;
    if (found.get(value) != SUCCESS || value.is_null()) continue;
    if (value.get(path) != SUCCESS) {
      return DataFaultError(
          "a part of type audio names no path; wanted a string");
    }
    clip.path = std::string(path);
    break;
  }
  BALLAST_ASSIGN_OR_RETURN(clip.start,
                           ReadSeconds(part, {"audio_start", "start"}, "clip"));
  BALLAST_ASSIGN_OR_RETURN(clip.end,
                           ReadSeconds(part, {"audio_end", "end"}, "clip"));
  return clip;
}

absl::StatusOr<bool> ReadRowsKeys(MediumKind kind, const object& root,
                                  std::vector<NamedMedium>* media) {
  const std::string name(MediumName(kind));
  bool any = false;
  for (const std::string& key : {name, name + "s"}) {
    element value;
    if (root.at_key(key).get(value) != SUCCESS || value.is_null()) continue;
    array list;
    const bool is_list = value.get(list) == SUCCESS;
    if (is_list && list.size() == 0) continue;
    if (any) {
      return DataFaultError(absl::StrCat("keys `", name, "` and `", name,
                                         "s`; wanted one of the two"));
    }
    any = true;
    std::vector<element> named;
    if (is_list) {
      for (const element item : list) named.push_back(item);
    } else {
      named.push_back(value);
    }
    for (const element& each : named) {
      std::string_view path;
      if (each.get(path) != SUCCESS) {
        return DataFaultError(absl::StrCat(
            "`", key, "` is neither a string nor a list of strings"));
      }
      NamedMedium medium;
      medium.path = std::string(path);
      BALLAST_RETURN_IF_ERROR(AddRowsMedium(kind, std::move(medium), media));
    }
  }
  return any;
}

absl::Status AddRowsMedium(MediumKind kind, NamedMedium medium,
                           std::vector<NamedMedium>* media) {
  if (media->size() == kMaxVideos) {
    return DataFaultError(
        absl::StrCat("over ", kMaxVideos, " ", WordsOf(kind).many));
  }
  BALLAST_RETURN_IF_ERROR(CheckMediaPath(MediumName(kind), medium.path));
  media->push_back(std::move(medium));
  return absl::OkStatus();
}

}  // namespace ballast
