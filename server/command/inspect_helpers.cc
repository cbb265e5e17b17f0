#include "server/command/commands.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/media/audio/audio_reader.h"
#include "server/media/video/decoder/decoder_process.h"
#include "server/media/video/decoder/ffmpeg_version.h"
#include "server/text/sentencepiece/sentencepiece_tokenizer.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

// A file of these bytes, in memory.
absl::StatusOr<OwnedFd> MakeFile(absl::string_view bytes) {
  OwnedFd file(memfd_create("ballast-probe", MFD_CLOEXEC));
  if (file.get() < 0 || write(file.get(), bytes.data(), bytes.size()) !=
                            static_cast<ssize_t>(bytes.size())) {
    return absl::UnavailableError(
        absl::StrCat("a file in memory: ", strerrordesc_np(errno)));
  }
  return file;
}

// What is asked is refused: an answer of a helper that runs.
bool Runs(const absl::Status& answer) {
  return answer.code() != absl::StatusCode::kFailedPrecondition &&
         answer.code() != absl::StatusCode::kUnavailable;
}

absl::Status AskVideo() {
  const absl::string_view bytes = "no video";
  BALLAST_ASSIGN_OR_RETURN(const OwnedFd file, MakeFile(bytes));
  DecoderProcess process{DecoderProcess::Options()};
  return process.ReadFacts({file.get(), 0, bytes.size()}).status();
}

// Asks for samples: of all facts only an MP4 file's are read by a process.
absl::Status AskAudio(AudioFormat format) {
  const absl::string_view bytes = "no audio";
  BALLAST_ASSIGN_OR_RETURN(const OwnedFd file, MakeFile(bytes));
  AudioReader reader;
  AudioFacts facts;
  facts.format = format;
  facts.rate = kModelRate;
  facts.channels = 1;
  facts.frames = facts.samples = 1;
  return reader.ReadSamples({file.get(), 0, bytes.size()}, facts, {0, 1})
      .status();
}

absl::Status AskSentencePiece() {
  return SentencePieceHelper::Start("no model", false).status();
}

}  // namespace

absl::Status InspectHelpers(std::ostream& out) {
  struct Helper {
    const char* name;
    const char* reads;
    bool is_ffmpeg;
    absl::Status answer;
  };
  const Helper helpers[] = {
      {"ballast-video-decoder", "videos", true, AskVideo()},
      {"ballast-audio-decoder", "audio", false, AskAudio(AudioFormat::kWav)},
      {"ballast-m4a-decoder", "audio in M4A", true,
       AskAudio(AudioFormat::kM4a)},
      {"ballast-sentencepiece", "SentencePiece models", false,
       AskSentencePiece()},
  };
  int failed = 0;
  for (const Helper& helper : helpers) {
    Json line = {{"helper", helper.name}, {"reads", helper.reads}};
    if (helper.is_ffmpeg) line["version"] = std::string(kFfmpegVersion);
    if (!Runs(helper.answer)) {
      line["error"] = std::string(helper.answer.message());
      ++failed;
    }
    out << line.dump() << "\n";
  }
  BALLAST_RETURN_IF_ERROR(Flush(out));
  if (failed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(failed, failed == 1 ? " helper" : " helpers",
                   " cannot run here; see above"));
}

void AddInspectHelpers(CommandLine* line, Command* inspect) {
  line->AddCommand(
      inspect, "helpers",
      R"(Says whether the programs run here that decode video and audio and read
SentencePiece models, each with its own libraries. One JSON object a line:
helper, reads, FFmpeg's version, and error if it cannot run. Needs no
configuration. Exits with status 1 if one cannot run.)",
      "  ballast-server inspect helpers",
      []() -> absl::Status { return InspectHelpers(std::cout); });
}

}  // namespace ballast
