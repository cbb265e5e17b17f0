#include "server/command/inspect_video.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/owned_fd.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"
#include "server/corpus/limits.h"
#include "server/image/image.h"
#include "server/video/listed_frame.h"
#include "server/video/model_videos.h"
#include "server/video/video_plan.h"
#include "server/video/video_reader.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of frames that are held at a time.
constexpr size_t kMostBytes = size_t{256} << 20;

// A picture's pixels are bounded, and so is what `inspect` holds.
absl::Status CheckPixels(uint32_t height, uint32_t width) {
  const uint64_t pixels = uint64_t{height} * width;
  if (pixels <= kMaxImagePixels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("frames would be resized to ", width, "x", height,
                   " pixels; at most ", kMaxImagePixels, " are made"));
}

void AddPlan(const VideoPlan& plan, Json* object) {
  Json& to = *object;
  to["sampled"] = plan.frames;
  to["resized_h"] = plan.height;
  to["resized_w"] = plan.width;
  to["grid_thw"] = {plan.grid_t, plan.grid_h, plan.grid_w};
  to["video_tokens"] = plan.tokens;
  to["seconds"] = plan.seconds;
  to["second_per_grid_ts"] = plan.seconds_per_patch;
}

void AddFacts(const VideoFacts& facts, Json* object) {
  Json& to = *object;
  to["container"] = facts.container;
  to["codec"] = facts.codec;
  to["width"] = facts.width;
  to["height"] = facts.height;
  to["rotation"] = facts.rotation;
  to["frames"] = facts.frames();
  to["fps"] = facts.fps;
  to["duration"] = facts.seconds;
  to["variable_rate"] = facts.is_variable;
  if (!facts.scan.empty()) to["scan"] = facts.scan;
  uint64_t keys = 0;
  for (const VideoFrame& frame : facts.table.frames) {
    keys += facts.table.is_timed && frame.packet == frame.start ? 1 : 0;
  }
  to["key_frames"] = keys;
}

absl::Status AddHashes(const InspectVideoOptions& options,
                       const VideoBytes& video, const VideoFacts& facts,
                       const VideoPlan& plan, VideoReader* reader,
                       Json* object) {
  FrameForm form;
  form.width = plan.width;
  form.height = plan.height;
  form.resampling.library = options.library;
  form.apply_rotation = options.apply_rotation;
  const size_t frame_bytes = size_t{plan.width} * plan.height * 3;
  std::vector<std::string> hashes;
  std::vector<uint8_t> pixels;
  const size_t at_once = std::max<size_t>(1, kMostBytes / frame_bytes);
  for (size_t i = 0; i < plan.frames.size(); i += at_once) {
    const auto some = absl::MakeConstSpan(plan.frames).subspan(i, at_once);
    pixels.resize(some.size() * frame_bytes);
    BALLAST_RETURN_IF_ERROR(
        reader->ReadFrames(video, facts, some, form, absl::MakeSpan(pixels)));
    for (size_t k = 0; k < some.size(); ++k) {
      hashes.push_back(Sha256Hex(
          absl::MakeConstSpan(pixels).subspan(k * frame_bytes, frame_bytes)));
    }
  }
  (*object)["frames_sha256"] = hashes;
  return absl::OkStatus();
}

absl::Status InspectFile(const InspectVideoOptions& options,
                         const std::string& path, VideoReader* reader,
                         Json* object) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat stat = {};
  if (fd.get() < 0 || fstat(fd.get(), &stat) != 0) {
    return FileError(errno, "open", path);
  }
  if (!S_ISREG(stat.st_mode)) {
    return absl::InvalidArgumentError("neither a file nor a folder");
  }
  const VideoBytes video = {fd.get(), 0, static_cast<uint64_t>(stat.st_size)};
  BALLAST_ASSIGN_OR_RETURN(const VideoFacts facts, reader->ReadFacts(video));
  AddFacts(facts, object);
  const bool turn = options.apply_rotation;
  IndexedVideo indexed = IndexedVideoOf(facts);
  indexed.start = options.clip.start.value_or(0);
  indexed.end = options.clip.end.value_or(0);
  BALLAST_ASSIGN_OR_RETURN(
      const VideoPlan plan,
      PlanVideo(options.model, {facts.frames(), facts.fps},
                turn ? facts.shown_height() : facts.height,
                turn ? facts.shown_width() : facts.width, options.clip,
                options.seed.value_or(SeedOfVideo(indexed))));
  (*object)["packets_to_decode"] = PacketsToDecode(facts.table, plan.frames);
  AddPlan(plan, object);
  BALLAST_RETURN_IF_ERROR(CheckPixels(plan.height, plan.width));
  if (!options.decode) return absl::OkStatus();
  return AddHashes(options, video, facts, plan, reader, object);
}

absl::StatusOr<std::vector<std::string>> PicturesIn(const std::string& folder) {
  std::vector<std::string> pictures;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    pictures.push_back(entry->path().string());
  }
  if (error) return FileError(error.value(), "list", folder);
  if (pictures.empty()) {
    return absl::InvalidArgumentError("a folder without a picture");
  }
  std::sort(pictures.begin(), pictures.end());
  return pictures;
}

absl::Status InspectFolder(const InspectVideoOptions& options,
                           const std::string& folder, Json* object) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                           PicturesIn(folder));
  ImageOptions image_options;
  image_options.resampling.library = options.library;
  ImageDecoder decoder(image_options);
  VideoPlan plan;
  std::vector<std::string> hashes;
  ImageHeader first = {};
  std::vector<uint8_t> frame;
  for (const std::string& path : paths) {
    BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
    if (file.stamp().size > kMaxSampleBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has ", file.stamp().size, " bytes; at most ",
                       kMaxSampleBytes, " are read"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             file.ReadAt(0, file.stamp().size));
    if (first.width == 0) {
      const auto size = ReadImageSize(bytes, image_options);
      if (!size.ok()) return Annotate(size.status(), path);
      first = *size;
      BALLAST_ASSIGN_OR_RETURN(
          plan,
          PlanFrameList(options.model, static_cast<uint32_t>(paths.size()), 0,
                        first.height, first.width));
      BALLAST_RETURN_IF_ERROR(CheckPixels(plan.height, plan.width));
      BALLAST_RETURN_IF_ERROR(CheckPixels(plan.first_height, plan.first_width));
      (*object)["frames"] = paths.size();
      AddPlan(plan, object);
      if (!options.decode) return absl::OkStatus();
      frame.resize(size_t{plan.width} * plan.height * 3);
    }
    const absl::Status made =
        MakeListedFrame(bytes, first.width, first.height, plan, &decoder,
                        absl::MakeSpan(frame));
    if (!made.ok()) return Annotate(made, path);
    hashes.push_back(Sha256Hex(frame));
  }
  // The last is repeated where frames come in pairs.
  hashes.resize(plan.frames.size(), hashes.back());
  (*object)["frames_sha256"] = hashes;
  return absl::OkStatus();
}

}  // namespace

absl::Status InspectVideos(const InspectVideoOptions& options,
                           absl::Span<const std::string> files,
                           std::ostream& out) {
  VideoReader reader(1);
  size_t failed = 0;
  for (const std::string& file : files) {
    Json object = {{"file", file}};
    std::error_code error;
    const absl::Status status =
        std::filesystem::is_directory(file, error)
            ? InspectFolder(options, file, &object)
            : InspectFile(options, file, &reader, &object);
    if (!status.ok()) {
      ++failed;
      object["error"] = std::string(status.message());
    }
    // A file's name may be any bytes; JSON allows only UTF-8.
    out << object.dump(-1, ' ', false, Json::error_handler_t::replace)
        << std::endl;
    if (!out) return absl::UnavailableError("cannot write to standard output");
  }
  if (failed == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(failed, " of ", files.size(),
                   " videos failed; see `error` in their lines"));
}

}  // namespace ballast
