#include "server/media/audio/audio_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "proto/schedule/schedule_table.h"
#include "server/media/audio/log_mel.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr AudioFormat kFormats[] = {AudioFormat::kWav,  AudioFormat::kFlac,
                                    AudioFormat::kMp3,  AudioFormat::kVorbis,
                                    AudioFormat::kOpus, AudioFormat::kM4a,
                                    AudioFormat::kVideo};

// Version of the way from an audio file to features: libsndfile, which
// decodes Opus at the rate that its header names, FFmpeg for M4A, and soxr HQ.
constexpr int kAudioRules = 1;

// Numbers of a row.
uint32_t WidthOf(const v1::AudioFamily& family) {
  return family.features().mels() *
         std::max(family.frames().stack(), uint32_t{1});
}

}  // namespace

absl::StatusOr<StreamFacts> ToIndexedClip(const AudioFacts& facts) {
  if (facts.frames > std::numeric_limits<uint32_t>::max()) {
    return DataFaultError(
        absl::StrCat(facts.frames, " samples of each channel; an index holds ",
                     "fewer than 2^32: cut the file"));
  }
  AudioInIndex clip = {};
  clip.rate = facts.rate;
  clip.frames = static_cast<uint32_t>(facts.frames);
  clip.channels = facts.channels;
  clip.one[0] = clip.one[1] = 1;
  std::strncpy(clip.format, AudioFormatName(facts.format),
               sizeof(clip.format) - 1);
  auto row = std::bit_cast<StreamFacts>(clip);
  row.SetRowsKind(MediumKind::kAudio);
  return row;
}

AudioFacts GetAudioFacts(const StreamFacts& row) {
  const auto clip = std::bit_cast<AudioInIndex>(row);
  AudioFacts facts;
  for (const AudioFormat format : kFormats) {
    if (std::strncmp(AudioFormatName(format), clip.format,
                     sizeof(clip.format)) == 0) {
      facts.format = format;
    }
  }
  facts.rate = static_cast<uint32_t>(clip.rate);
  facts.channels = clip.channels;
  facts.frames = clip.frames;
  facts.samples = ResampledCount(facts.frames, facts.rate);
  return facts;
}

absl::StatusOr<ClipPlan> PlanIndexedClip(const v1::AudioFamily& family,
                                         const StreamFacts& clip) {
  ClipPlan planned;
  AudioClip part;
  if (clip.flags & StreamFacts::kHasStart) part.start = clip.start;
  if (clip.flags & StreamFacts::kHasEnd) part.end = clip.end;
  BALLAST_ASSIGN_OR_RETURN(planned.range,
                           CutClip(part, GetAudioFacts(clip).samples));
  BALLAST_ASSIGN_OR_RETURN(planned.plan,
                           PlanAudio(family, planned.range.samples));
  const AudioPlan& plan = planned.plan;
  planned.range.samples = plan.samples;
  if (plan.samples > kMaxClipSamples) {
    return DataFaultError(absl::StrCat(
        "a clip of ", plan.samples / kModelRate, " s; at most ",
        kMaxClipSamples / kModelRate, " s are read: take a clip of it"));
  }
  if (plan.frames == 0 || plan.tokens == 0) {
    return DataFaultError(absl::StrCat(
        "a clip of ", plan.samples, " samples at 16 kHz gives ", plan.frames,
        " frames and ", plan.tokens, " tokens; wanted a longer one"));
  }
  // Encoders that make tokens of padding see all of it.
  const uint64_t rows =
      family.tokens().of_padded()
          ? plan.shape
          : std::min(plan.shape, plan.frames + family.frames().tail());
  if (rows > kMaxClipRows) {
    return DataFaultError(absl::StrCat("a clip of ", rows, " frames; at most ",
                                       kMaxClipRows, " travel"));
  }
  planned.rows = static_cast<uint32_t>(rows);
  planned.frames = static_cast<uint32_t>(plan.frames);
  return planned;
}

v1::Job::ClipShape GetClipShape(const v1::AudioFamily& family) {
  v1::Job::ClipShape shape;
  shape.set_width(WidthOf(family));
  shape.set_dummy_rows(1);
  // Far beyond the shortest clip that any model takes.
  for (uint64_t samples = kModelRate / 100; samples < 60 * kModelRate;
       samples += kModelRate / 100) {
    const auto plan = PlanAudio(family, samples);
    if (!plan.ok() || plan->frames == 0 || plan->tokens == 0) continue;
    shape.set_dummy_rows(static_cast<uint32_t>(
        family.tokens().of_padded() ? plan->shape : plan->frames));
    break;
  }
  return shape;
}

struct ClipReader::Worker {
  explicit Worker(const AudioReader::Options& options) : reader(options) {}

  absl::StatusOr<std::vector<float>> ReadSamples(const RawMedium& file,
                                                 const StreamFacts& clip,
                                                 const ClipPlan& plan) {
    auto samples = reader.ReadSamples({file.fd->get(), file.offset, file.size},
                                      GetAudioFacts(clip), plan.range);
    // A file that changed meanwhile may have been read in part.
    BALLAST_RETURN_IF_ERROR(CheckUnchanged(file));
    return samples;
  }

  AudioReader reader;
  std::optional<LogMel> features;
};

ClipReader::ClipReader(int processes, const v1::AudioFamily* family,
                       const AudioReader::Options& options)
    : family_(family), workers_(processes, options) {}

ClipReader::~ClipReader() = default;

absl::StatusOr<StreamFacts> ClipReader::ReadFacts(const RawMedium& file,
                                                  bool in_video) {
  const Workers::Loan worker(&workers_);
  const auto facts = worker->reader.ReadFacts(
      {file.fd->get(), file.offset, file.size}, in_video);
  BALLAST_RETURN_IF_ERROR(CheckUnchanged(file));
  if (!facts.ok()) return facts.status();
  return ToIndexedClip(*facts);
}

absl::StatusOr<std::vector<float>> ClipReader::ReadSamples(
    const RawMedium& file, const StreamFacts& clip, const ClipPlan& plan) {
  return Workers::Loan(&workers_)->ReadSamples(file, clip, plan);
}

absl::Status ClipReader::Write(const RawMedium& file, const StreamFacts& clip,
                               absl::Span<float> out) {
  if (family_ == nullptr) {
    return absl::InternalError("audio, and the model takes none");
  }
  BALLAST_ASSIGN_OR_RETURN(const ClipPlan plan,
                           PlanIndexedClip(*family_, clip));
  const Workers::Loan worker(&workers_);
  if (!worker->features.has_value()) {
    BALLAST_ASSIGN_OR_RETURN(worker->features, LogMel::Create(*family_));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<float> samples,
                           worker->ReadSamples(file, clip, plan));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<float> values,
      worker->features->Compute(plan.plan, samples, plan.rows));
  if (values.size() != out.size()) {
    return absl::InternalError(absl::StrCat("a clip has ", values.size(),
                                            " features, and its place is for ",
                                            out.size()));
  }
  std::copy(values.begin(), values.end(), out.begin());
  return absl::OkStatus();
}

absl::StatusOr<RowsPlan> AudioRows::Plan(const StreamFacts& clip) const {
  BALLAST_ASSIGN_OR_RETURN(const ClipPlan plan, PlanIndexedClip(family_, clip));
  constexpr uint64_t kProcess = uint64_t{16} << 20;
  const uint64_t features = uint64_t{plan.rows} * WidthOf(family_);
  return RowsPlan{plan.rows, plan.frames, plan.plan.tokens,
                  kProcess + (plan.plan.samples + features) * sizeof(float)};
}

RowsRule::IndexKeys AudioRows::index_keys(const v1::Model& model) const {
  return {absl::StrCat("\nsound=taken", model.video().use_audio_in_video()
                                            ? "\naudio_in_video=among clips"
                                            : ""),
          absl::StrCat("sound: ", family_.ShortDebugString(), "\n")};
}

std::vector<std::pair<std::string, std::string>> AudioRows::fingerprint()
    const {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(family_, &text);
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return {{"sound",
           Sha256Hex(absl::MakeConstSpan(bytes, text.size())).substr(0, 32)},
          {"sound_rules", absl::StrCat(kAudioRules)}};
}

absl::Status AudioRows::Check() const {
  return Annotate(LogMel::Create(family_).status(), "audio");
}

std::unique_ptr<RowsReader> AudioRows::MakeReader(
    int threads, HelperCounters* counters) const {
  AudioReader::Options options;
  options.counters = counters;
  return std::make_unique<ClipReader>(threads, &family_, options);
}

}  // namespace ballast
