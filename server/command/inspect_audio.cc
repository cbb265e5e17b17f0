#include "server/command/commands.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/sha256.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/audio/audio_reader.h"
#include "server/audio/log_mel.h"
#include "server/config/profiles.h"
#include "server/corpus/file.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

absl::Status InspectFile(const InspectAudioOptions& options,
                         const v1::AudioFamily& family, const std::string& path,
                         AudioReader* reader, LogMel* features, Json* object) {
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
        return InspectFile(options, *family, file, &reader, &features, object);
      },
      out);
}

namespace {

struct Flags {
  std::string model;
  double start = 0;
  double end = 0;
  bool plan_only = false;
  std::optional<Option> start_option;
  std::optional<Option> end_option;
  std::vector<std::string> files;
};

absl::Status Run(const Flags& flags) {
  InspectAudioOptions options;
  options.model = flags.model;
  if (flags.start_option->given()) options.clip.start = flags.start;
  if (flags.end_option->given()) options.clip.end = flags.end;
  options.decode = !flags.plan_only;
  return InspectAudio(options, flags.files, std::cout);
}

}  // namespace

void AddInspectAudio(CommandLine* line, Command* inspect) {
  auto flags = std::make_shared<Flags>();
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
      [flags]() -> absl::Status { return Run(*flags); });
  command->AddText("--model", &flags->model, "the model, of docs/audio.md")
      .OneOf(AudioFamilyNames())
      .Required()
      .TypeName("MODEL");
  flags->start_option = command->AddReal("--start", &flags->start,
                                         "where the clip starts, in seconds");
  flags->end_option =
      command->AddReal("--end", &flags->end, "where it ends, in seconds");
  command->AddFlag("--plan-only", &flags->plan_only,
                   "decode nothing that headers tell");
  command->AddTexts("FILE", &flags->files, "audio files").Required();
}

}  // namespace ballast
