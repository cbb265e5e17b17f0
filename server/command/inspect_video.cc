#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/command_line.h"
#include "common/sha256.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/command/commands.h"
#include "server/files/file.h"
#include "server/media/audio/audio_reader.h"
#include "server/media/audio/log_mel.h"
#include "server/media/image/image.h"
#include "server/media/video/frame_table.h"
#include "server/media/video/video_plan.h"
#include "server/media/video/video_reader.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of frames that are held at a time.
constexpr size_t kMaxBytes = size_t{256} << 20;

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
  const size_t at_once = std::max<size_t>(1, kMaxBytes / frame_bytes);
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
  StreamFacts indexed = GetIndexedVideo(facts);
  indexed.start = options.clip.start.value_or(0);
  indexed.end = options.clip.end.value_or(0);
  BALLAST_ASSIGN_OR_RETURN(
      const VideoPlan plan,
      PlanVideo(options.model, {facts.frames(), facts.fps, facts.times},
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
  return InspectFiles(
      files, "videos",
      [&](const std::string& file, Json* object) {
        std::error_code error;
        return std::filesystem::is_directory(file, error)
                   ? InspectFolder(options, file, object)
                   : InspectFile(options, file, &reader, object);
      },
      out);
}

namespace {

struct Flags {
  std::string model;
  std::string rules;
  std::string sampling = "qwen_vl_utils";
  std::string resample = "pillow12";
  double fps = 0;
  uint32_t min_frames = 0;
  uint32_t max_frames = 0;
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  uint64_t total_pixels = 0;
  bool cap_pixels_per_frame = false;
  bool force_sample = false;
  double start = 0;
  double end = 0;
  uint64_t seed = 0;
  bool ignore_rotation = false;
  bool plan_only = false;
  std::optional<Option> start_option;
  std::optional<Option> end_option;
  std::optional<Option> seed_option;
  std::vector<std::string> files;
};

absl::Status Run(const Flags& flags) {
  InspectVideoOptions options;
  options.model = *FindVideoModel(UnderRules(flags.model, flags.rules),
                                  flags.sampling == "transformers"
                                      ? VideoSampling::kTransformers
                                      : VideoSampling::kOwn);
  VideoModel& model = options.model;
  model.fps = flags.fps;
  model.min_frames = flags.min_frames;
  model.max_frames = flags.max_frames;
  model.min_pixels = flags.min_pixels;
  model.max_pixels = flags.max_pixels;
  model.total_pixels = flags.total_pixels;
  model.cap_pixels_per_frame = flags.cap_pixels_per_frame;
  if (model.cap_pixels_per_frame && model.sampling == VideoSampling::kOwn) {
    return absl::InvalidArgumentError(
        "--cap-pixels-per-frame goes with --sampling transformers; "
        "qwen_vl_utils always has that bound");
  }
  if (model.total_pixels != 0 && model.sampling != VideoSampling::kOwn) {
    return absl::InvalidArgumentError(
        "--total-pixels goes with --sampling qwen_vl_utils; transformers has "
        "no such key");
  }
  model.force_sample = flags.force_sample;
  if (model.force_sample &&
      (model.rule != VideoRule::kLlava || model.max_frames == 0)) {
    return absl::InvalidArgumentError(
        "--force-sample goes with --model llava_video and --max-frames");
  }
  if (flags.start_option->given()) options.clip.start = flags.start;
  if (flags.end_option->given()) options.clip.end = flags.end;
  if (flags.seed_option->given()) options.seed = flags.seed;
  options.library = flags.resample == "torchvision"
                        ? ResampleLibrary::kTorchvision
                    : flags.resample == "pillow13" ? ResampleLibrary::kPillow13
                                                   : ResampleLibrary::kPillow12;
  options.apply_rotation = !flags.ignore_rotation;
  options.decode = !flags.plan_only;
  return InspectVideos(options, flags.files, std::cout);
}

void AddLimits(Command* command, Flags* flags) {
  command
      ->AddReal("--fps", &flags->fps,
                "frames sampled a second (default: 2; LLaVA-Video: 1)")
      .Between(0.001, 1000);
  command->AddWholeNumber("--min-frames", &flags->min_frames,
                          "fewest frames sampled (default: the model's)", 1,
                          1 << 20);
  command->AddWholeNumber("--max-frames", &flags->max_frames,
                          "most frames sampled (default: the model's)", 1,
                          1 << 20);
  command->AddWholeNumber("--min-pixels", &flags->min_pixels,
                          "fewest pixels of a frame (Qwen3-VL by "
                          "transformers: of all)",
                          1);
  command->AddWholeNumber("--max-pixels", &flags->max_pixels,
                          "most pixels, likewise", 1);
  command->AddWholeNumber("--total-pixels", &flags->total_pixels,
                          "most pixels of all frames (qwen_vl_utils)", 1);
  command->AddFlag("--cap-pixels-per-frame", &flags->cap_pixels_per_frame,
                   "transformers' option of that name");
  command->AddFlag("--force-sample", &flags->force_sample,
                   "llava_video: --max-frames frames of shorter videos, too");
}

}  // namespace

void AddInspectVideo(CommandLine* line, Command* inspect) {
  auto flags = std::make_shared<Flags>();
  Command* command = line->AddCommand(
      inspect, "video",
      R"(Prints what a model sees of videos.
One JSON object a video, in order: what its file says, the frames that are
sampled, their size, grid, tokens and seconds, the packets that this takes to
decode, and SHA-256 of each sampled frame as resized RGB; or `error`. A folder
is a video of the pictures in it, by name. Exits with status 1 if any failed.)",
      R"(  ballast-server inspect video --model qwen2_5_vl clip.mp4
  ballast-server inspect video --model qwen3_vl --sampling transformers *.webm
  ballast-server inspect video --model internvl3 --start 3 --end 9.5 talk.mkv)",
      [flags]() -> absl::Status { return Run(*flags); });
  command->AddText("--model", &flags->model, "the model, of docs/video.md")
      .OneOf(VideoModelNames())
      .Required()
      .TypeName("MODEL");
  AddRules(command, &flags->rules);
  command
      ->AddText("--sampling", &flags->sampling,
                "whose rule: qwen-vl-utils (for other models their own "
                "training code) or transformers")
      .OneOf({"qwen_vl_utils", "transformers"})
      .ShowDefault();
  AddLimits(command, flags.get());
  flags->start_option = command->AddReal("--start", &flags->start,
                                         "where the clip starts, in seconds");
  flags->end_option =
      command->AddReal("--end", &flags->end, "where it ends, in seconds");
  flags->seed_option = command->AddWholeNumber(
      "--seed", &flags->seed,
      "where frames are drawn (internvl3; default: as in a job)");
  command->AddText("--resample", &flags->resample, "whose pixels")
      .OneOf({"pillow12", "pillow13", "torchvision"})
      .ShowDefault();
  command->AddFlag("--ignore-rotation", &flags->ignore_rotation,
                   "leave frames as stored, whatever the header says");
  command->AddFlag("--plan-only", &flags->plan_only, "decode nothing");
  command->AddTexts("FILE", &flags->files, "videos, or folders of pictures")
      .Required();
}

namespace {

absl::Status InspectAudioFile(const InspectAudioOptions& options,
                              const v1::AudioFamily& family,
                              const std::string& path, AudioReader* reader,
                              LogMel* features, Json* object) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat stat = {};
  if (fd.get() < 0 || fstat(fd.get(), &stat) != 0) {
    return FileError(errno, "open", path);
  }
  if (!S_ISREG(stat.st_mode)) return absl::InvalidArgumentError("not a file");
  const AudioBytes file = {fd.get(), 0, static_cast<uint64_t>(stat.st_size)};
  BALLAST_ASSIGN_OR_RETURN(const AudioFacts facts, reader->ReadFacts(file));
  Json& to = *object;
  to["format"] = AudioFormatName(facts.format);
  to["rate"] = facts.rate;
  to["channels"] = facts.channels;
  BALLAST_ASSIGN_OR_RETURN(const SampleRange range,
                           CutClip(options.clip, facts.samples));
  to["samples"] = range.samples;
  if (!facts.scan.empty()) to["scan"] = facts.scan;
  BALLAST_ASSIGN_OR_RETURN(const AudioPlan plan,
                           PlanAudio(family, range.samples));
  to["frames"] = plan.frames;
  to["audio_tokens"] = plan.tokens;
  if (!options.decode) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<float> samples,
      reader->ReadSamples(file, facts, {range.first, plan.samples}));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<float> values,
                           features->Compute(plan, samples, plan.frames));
  to["features_sha256"] =
      Sha256Hex({reinterpret_cast<const uint8_t*>(values.data()),
                 values.size() * sizeof(float)});
  return absl::OkStatus();
}

}  // namespace

absl::Status InspectAudio(const InspectAudioOptions& options,
                          absl::Span<const std::string> files,
                          std::ostream& out) {
  const v1::AudioFamily* family = FindAudioFamily(options.model);
  if (family == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("found model \"", options.model, "\"; wanted one of ",
                     absl::StrJoin(AudioFamilyNames(), ", ")));
  }
  BALLAST_ASSIGN_OR_RETURN(LogMel features, LogMel::Create(*family));
  AudioReader reader;
  return InspectFiles(
      files, "files",
      [&](const std::string& file, Json* object) {
        return InspectAudioFile(options, *family, file, &reader, &features,
                                object);
      },
      out);
}

namespace {

struct AudioFlags {
  std::string model;
  std::string rules;
  double start = 0;
  double end = 0;
  bool plan_only = false;
  std::optional<Option> start_option;
  std::optional<Option> end_option;
  std::vector<std::string> files;
};

absl::Status RunAudio(const AudioFlags& flags) {
  InspectAudioOptions options;
  options.model = UnderRules(flags.model, flags.rules);
  if (flags.start_option->given()) options.clip.start = flags.start;
  if (flags.end_option->given()) options.clip.end = flags.end;
  options.decode = !flags.plan_only;
  return InspectAudio(options, flags.files, std::cout);
}

}  // namespace

void AddInspectAudio(CommandLine* line, Command* inspect) {
  auto flags = std::make_shared<AudioFlags>();
  Command* command = line->AddCommand(
      inspect, "audio",
      R"(Prints what a model makes of audio.
One JSON object a file, in order: what its headers say, the samples of the clip
at 16 kHz, the frames of features and tokens that the model makes of them, and
SHA-256 of the frames as float32, row by row; or `error`. WAV, FLAC, MP3, Ogg
Vorbis, Ogg Opus and M4A. Exits with status 1 if any failed.)",
      R"(  ballast-server inspect audio --model qwen2_audio speech.wav
  ballast-server inspect audio --model qwen3_omni_moe --plan-only *.flac
  ballast-server inspect audio --model voxtral --start 3 --end 9.5 talk.m4a)",
      [flags]() -> absl::Status { return RunAudio(*flags); });
  command->AddText("--model", &flags->model, "the model, of docs/audio.md")
      .OneOf(AudioFamilyNames())
      .Required()
      .TypeName("MODEL");
  AddRules(command, &flags->rules);
  flags->start_option = command->AddReal("--start", &flags->start,
                                         "where the clip starts, in seconds");
  flags->end_option =
      command->AddReal("--end", &flags->end, "where it ends, in seconds");
  command->AddFlag("--plan-only", &flags->plan_only,
                   "decode only what headers do not give");
  command->AddTexts("FILE", &flags->files, "audio files").Required();
}

}  // namespace ballast
