#include "server/audio/indexed_clip.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/schedule_table.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

constexpr AudioFormat kFormats[] = {AudioFormat::kWav,  AudioFormat::kFlac,
                                    AudioFormat::kMp3,  AudioFormat::kVorbis,
                                    AudioFormat::kOpus, AudioFormat::kM4a,
                                    AudioFormat::kVideo};

}  // namespace

absl::StatusOr<IndexedVideo> ToIndexedClip(const AudioFacts& facts) {
  if (facts.frames > std::numeric_limits<uint32_t>::max()) {
    return DataFaultError(
        absl::StrCat(facts.frames, " samples of each channel; an index holds ",
                     "fewer than 2^32: cut the file"));
  }
  IndexedVideo clip = {};
  clip.flags = IndexedVideo::kIsAudio;
  clip.fps = facts.rate;
  clip.frames = static_cast<uint32_t>(facts.frames);
  clip.key_frames = facts.channels;
  clip.width = 1;
  clip.height = 1;
  std::strncpy(clip.codec, AudioFormatName(facts.format),
               sizeof(clip.codec) - 1);
  return clip;
}

AudioFacts GetAudioFacts(const IndexedVideo& clip) {
  AudioFacts facts;
  for (const AudioFormat format : kFormats) {
    if (std::strncmp(AudioFormatName(format), clip.codec, sizeof(clip.codec)) ==
        0) {
      facts.format = format;
    }
  }
  facts.rate = static_cast<uint32_t>(clip.fps);
  facts.channels = clip.key_frames;
  facts.frames = clip.frames;
  facts.samples = ResampledCount(facts.frames, facts.rate);
  return facts;
}

absl::StatusOr<ClipPlan> PlanIndexedClip(const v1::AudioFamily& family,
                                         const IndexedVideo& clip) {
  ClipPlan planned;
  AudioClip part;
  if (clip.flags & IndexedVideo::kHasStart) part.start = clip.start;
  if (clip.flags & IndexedVideo::kHasEnd) part.end = clip.end;
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
  shape.set_width(family.features().mels() *
                  std::max(family.frames().stack(), uint32_t{1}));
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

}  // namespace ballast
