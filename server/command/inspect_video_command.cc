#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line.h"
#include "server/command/inspect_video.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

struct Flags {
  std::string model;
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
  options.model =
      *FindVideoModel(flags.model, flags.sampling == "transformers"
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

}  // namespace ballast
