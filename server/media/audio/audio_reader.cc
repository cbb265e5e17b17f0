#include "server/media/audio/audio_reader.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/audio/decoder/ffmpeg_image.h"
#include "server/media/audio/decoder/sndfile_image.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using audio_decoder::Outcome;
using audio_decoder::Request;

constexpr char kName[] = "the audio decoder";

// Processor time of a request: generous, since it only has to end what would
// never end. A present core decodes 50 times as much.
constexpr uint64_t kBaseSeconds = 60;
constexpr uint64_t kSamplesASecond = 1'000'000;
constexpr uint64_t kBytesASecond = 100'000;
constexpr uint64_t kMaxSeconds = 4 * 3600;

// The most bytes of an answer in addition to its reason.
constexpr uint64_t kMaxContext = 256;

HelperProcess::Options MakeOptions(const AudioReader::Options& options,
                                   std::string libraries) {
  return {.name = kName,
          .libraries = std::move(libraries),
          .input_fault = DataFaultError,
          .patience = options.patience,
          .counters = options.counters};
}

absl::StatusOr<std::string> ReadFile(const AudioBytes& file, uint64_t offset,
                                     uint64_t bytes) {
  std::string read(bytes, '\0');
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file.fd, read.data() + done, bytes - done,
                              static_cast<off_t>(file.offset + offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::UnavailableError(absl::StrCat(
          "reading the audio: ",
          got == 0 ? "the file ends early" : strerrordesc_np(errno)));
    }
    done += static_cast<uint64_t>(got);
  }
  return read;
}

}  // namespace

AudioReader::AudioReader(const Options& options)
    : sndfile_(
          MakeOptions(options, HelperLibrariesAdvice("audio cannot be decoded",
                                                     "libsndfile1, libsoxr0")),
          [] {
            return StartHelper({.name = "ballast-audio-decoder",
                                .image = kSndfileImage,
                                .bytes = kSndfileImageBytes});
          }),
      ffmpeg_(
          MakeOptions(options, HelperLibrariesAdvice(
                                   "the audio of M4A and of videos cannot be "
                                   "decoded",
                                   "libavcodec59, libavformat59, libdav1d6, "
                                   "libswscale6, libsoxr0")),
          [] {
            return StartHelper({.name = "ballast-m4a-decoder",
                                .image = kFfmpegImage,
                                .bytes = kFfmpegImageBytes});
          }) {}

HelperProcess& AudioReader::GetProcess(AudioFormat format) {
  return format == AudioFormat::kM4a || format == AudioFormat::kVideo
             ? ffmpeg_
             : sndfile_;
}

absl::StatusOr<audio_decoder::Facts> AudioReader::Receive(
    HelperProcess& process, uint64_t most, std::vector<float>* samples) {
  constexpr uint64_t kMaxAnswer =
      audio_decoder::kMaxSamplesInAnswer * sizeof(float);
  static_assert(kMaxAnswer > audio_decoder::kMaxReasonBytes + kMaxContext);
  const auto contradiction = [&] {
    process.Stop(HelperEnd::kAnswer);
    return DataFaultError(
        absl::StrCat(kName, " contradicts itself; is the file damaged?"));
  };
  std::string answer;
  while (true) {
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(process.Receive(kMaxAnswer, &kind, &answer));
    audio_decoder::Facts facts;
    switch (static_cast<Outcome>(kind)) {
      case Outcome::kOk: {
        const size_t count = answer.size() / sizeof(float);
        if (samples == nullptr || count * sizeof(float) != answer.size() ||
            count > most - samples->size()) {
          return contradiction();
        }
        const size_t at = samples->size();
        samples->resize(at + count);
        std::memcpy(samples->data() + at, answer.data(), answer.size());
        break;
      }
      case Outcome::kEnd:
        if (answer.size() != sizeof(facts)) return contradiction();
        std::memcpy(&facts, answer.data(), sizeof(facts));
        return facts;
      default:
        for (char& c : answer) {
          if (c < ' ' || c > '~') c = '?';
        }
        if (static_cast<Outcome>(kind) == Outcome::kUnread) {
          return absl::UnavailableError(
              absl::StrCat("reading the audio: ", answer));
        }
        return DataFaultError(answer);
    }
  }
}

absl::StatusOr<audio_decoder::Facts> AudioReader::Ask(
    HelperProcess& process, audio_decoder::Task task, const AudioBytes& file,
    Request request, std::vector<float>* samples) {
  request.offset = file.offset;
  request.bytes = file.bytes;
  request.cpu_seconds =
      std::min(kMaxSeconds, kBaseSeconds + file.bytes / kBytesASecond +
                                request.frames / kSamplesASecond);
  audio_decoder::Facts facts = {};
  BALLAST_RETURN_IF_ERROR(process.Ask([&]() -> absl::Status {
    // Also after a crash, when it begins again.
    if (samples != nullptr) samples->clear();
    BALLAST_RETURN_IF_ERROR(process.Send(task, {GetBytes(request)}, {file.fd}));
    BALLAST_ASSIGN_OR_RETURN(facts, Receive(process, request.samples, samples));
    return absl::OkStatus();
  }));
  return facts;
}

absl::StatusOr<AudioFacts> AudioReader::ReadFacts(const AudioBytes& file,
                                                  bool in_video) {
  AudioHeader header;
  header.format = AudioFormat::kVideo;
  if (!in_video) {
    BALLAST_ASSIGN_OR_RETURN(
        header,
        ReadAudioHeader(file.bytes, [&](uint64_t offset, uint64_t bytes) {
          return ReadFile(file, offset, bytes);
        }));
  }
  AudioFacts facts;
  facts.format = header.format;
  facts.rate = header.rate;
  facts.channels = header.channels;
  facts.frames = header.samples.value_or(0);
  facts.scan = header.scan;
  HelperProcess& process = GetProcess(header.format);
  const auto ask = [&](audio_decoder::Task task) -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(const audio_decoder::Facts told,
                             Ask(process, task, file, Request(), nullptr));
    facts.rate = told.rate;
    facts.channels = told.channels;
    facts.frames = told.frames;
    return absl::OkStatus();
  };
  if (header.format == AudioFormat::kM4a || in_video) {
    BALLAST_RETURN_IF_ERROR(ask(audio_decoder::kFacts));
    if (facts.frames == 0) {
      facts.scan = in_video ? "the video's header does not count the samples"
                            : "M4A in fragments: the header does not count the "
                              "samples";
    }
  }
  if (!facts.scan.empty()) {
    BALLAST_RETURN_IF_ERROR(ask(audio_decoder::kCount));
    // Of WAV the two count alike.
    if (header.format == AudioFormat::kFlac && header.samples &&
        facts.frames != *header.samples) {
      return DataFaultError(absl::StrCat("the stream has ", facts.frames,
                                         " samples a channel, the header says ",
                                         *header.samples,
                                         ": it was damaged or cut short"));
    }
  } else if (header.asks_decoder) {
    BALLAST_RETURN_IF_ERROR(
        Ask(process, audio_decoder::kFacts, file, Request(), nullptr).status());
  }
  if (facts.rate < audio_decoder::kMinRate ||
      facts.rate > audio_decoder::kMaxRate || facts.channels == 0 ||
      facts.channels > audio_decoder::kMaxChannels) {
    return DataFaultError(absl::StrCat(
        facts.rate, " samples a second and ", facts.channels,
        " channels; wanted ", audio_decoder::kMinRate, " to ",
        audio_decoder::kMaxRate, " and 1 to ", audio_decoder::kMaxChannels));
  }
  if (facts.frames == 0 || facts.frames > kMaxAudioSamples) {
    return DataFaultError(absl::StrCat("the stream has ", facts.frames,
                                       " samples a channel; wanted 1 to ",
                                       kMaxAudioSamples));
  }
  facts.samples = ResampledCount(facts.frames, facts.rate);
  return facts;
}

absl::StatusOr<std::vector<float>> AudioReader::ReadSamples(
    const AudioBytes& file, const AudioFacts& facts, const SampleRange& range) {
  if (range.samples > kMaxClipSamples) {
    return DataFaultError(
        absl::StrCat("a clip of ", range.samples / kModelRate, " s; at most ",
                     kMaxClipSamples / kModelRate,
                     " s are read at a time; take a clip of it"));
  }
  Request request = {};
  request.first = range.first;
  request.samples = range.samples;
  request.frames = facts.frames;
  std::vector<float> samples;
  samples.reserve(range.samples);
  const auto told = Ask(GetProcess(facts.format), audio_decoder::kRead, file,
                        request, &samples);
  if (!told.ok()) return told.status();
  if (samples.size() != range.samples || told->rate != facts.rate ||
      told->channels != facts.channels) {
    return DataFaultError(absl::StrCat(
        "the stream has ", told->rate, " samples a second, ", told->channels,
        " channels and ", samples.size(), " samples of the clip; planned were ",
        facts.rate, ", ", facts.channels, " and ", range.samples,
        "; did the file change?"));
  }
  return samples;
}

}  // namespace ballast
