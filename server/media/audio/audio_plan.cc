#include "server/media/audio/audio_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint64_t CountRows(const v1::AudioFamily::Frames& frames, uint64_t padded) {
  const uint64_t all =
      padded + 2 * uint64_t{frames.reflect()} + frames.zeros_before();
  if (all < frames.span()) return 0;
  const uint64_t rows = (all - frames.span()) / frames.hop() + 1;
  return rows - (frames.drop_last() ? 1 : 0);
}

uint64_t ThroughLayers(const v1::AudioFamily::Tokens& tokens, uint64_t frames) {
  uint64_t count = frames;
  for (const v1::AudioFamily::Tokens::Layer& layer : tokens.layers()) {
    const uint64_t padded = count + layer.padding();
    count = padded < layer.kernel()
                ? 0
                : (padded - layer.kernel()) / layer.stride() + 1;
  }
  return count;
}

uint64_t CountTokens(const v1::AudioFamily::Tokens& tokens, uint64_t frames) {
  if (tokens.fixed() != 0) return tokens.fixed();
  uint64_t count = 0;
  if (const uint64_t chunk = tokens.chunk(); chunk != 0) {
    count = frames / chunk * ThroughLayers(tokens, chunk);
    frames %= chunk;
  }
  count += ThroughLayers(tokens, frames);
  count *= std::max(tokens.times(), uint32_t{1});
  return tokens.max() == 0 ? count : std::min<uint64_t>(count, tokens.max());
}

}  // namespace

absl::StatusOr<SampleRange> CutClip(const AudioClip& clip, uint64_t samples) {
  const double start = clip.start.value_or(0);
  const double last = static_cast<double>(kMaxAudioSamples) / kModelRate;
  const double end = clip.end.value_or(last);
  if (!(start >= 0) || !(end > start) || end > last) {
    return DataFaultError(absl::StrCat("a clip from ", start, " s to ", end,
                                       " s; wanted 0 <= start < end"));
  }
  const auto first = static_cast<uint64_t>(kModelRate * start);
  const uint64_t beyond =
      std::min(samples, static_cast<uint64_t>(kModelRate * end));
  if (first >= beyond) {
    return DataFaultError(absl::StrCat(
        "a clip from ", start, " s to ", end, " s of audio of ",
        static_cast<double>(samples) / kModelRate, " s contains no audio"));
  }
  return SampleRange{first, beyond - first};
}

absl::StatusOr<AudioPlan> PlanAudio(const v1::AudioFamily& family,
                                    uint64_t samples) {
  const v1::AudioFamily::Samples& limits = family.samples();
  const v1::AudioFamily::Frames& frames = family.frames();
  const uint64_t min = std::max(limits.min(), uint32_t{1});
  if (samples < min || samples > kMaxAudioSamples) {
    return DataFaultError(absl::StrCat("a clip of ", samples,
                                       " samples at 16 kHz; the model takes ",
                                       min, " to ", kMaxAudioSamples));
  }
  AudioPlan plan;
  plan.samples = limits.max() == 0 ? samples : std::min(samples, limits.max());
  plan.padded = RoundUp(std::max(plan.samples, limits.pad_to()),
                        std::max(limits.multiple(), uint32_t{1}));
  plan.rows = CountRows(frames, plan.padded);
  const uint64_t valid =
      frames.valid() == v1::AudioFamily::Frames::VALID_BEGUN
          ? std::min(plan.rows,
                     (plan.samples + frames.hop() - 1) / frames.hop())
          : CountRows(frames, plan.samples);
  const uint64_t stack = std::max(frames.stack(), uint32_t{1});
  plan.shape = plan.rows / stack;
  plan.frames = valid / stack;
  plan.tokens = CountTokens(
      family.tokens(), family.tokens().of_padded() ? plan.shape : plan.frames);
  return plan;
}

}  // namespace ballast
