#include "server/audio/decoder/mono_resampler.h"

#include "server/audio/decoder/decoder_protocol.h"

namespace ballast::audio_decoder {
namespace {

// Sums in numpy's order: eight at a time from eight channels on.
float Sum(const float* values, uint32_t count) {
  if (count < 8) {
    float sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += values[i];
    return sum;
  }
  float r[8];
  for (uint32_t i = 0; i < 8; ++i) r[i] = values[i];
  uint32_t at = 8;
  for (; at + 8 <= count; at += 8) {
    for (uint32_t i = 0; i < 8; ++i) r[i] += values[at + i];
  }
  float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; at < count; ++at) sum += values[at];
  return sum;
}

}  // namespace

MonoResampler::MonoResampler(uint32_t rate, uint32_t channels)
    : rate_(rate), channels_(channels) {
  if (rate == kModelRate) return;
  const soxr_io_spec_t form = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  soxr_error_t error = nullptr;
  soxr_ = soxr_create(rate, kModelRate, 1, &error, &form, &quality, &runtime);
  is_open_ = error == nullptr && soxr_ != nullptr;
}

MonoResampler::~MonoResampler() { soxr_delete(soxr_); }

bool MonoResampler::Add(const float* interleaved, size_t frames,
                        std::vector<float>* out) {
  mono_.resize(frames);
  const auto channels = static_cast<float>(channels_);
  for (size_t i = 0; i < frames; ++i) {
    mono_[i] = Sum(interleaved + i * channels_, channels_) / channels;
  }
  if (rate_ == kModelRate) {
    *out = mono_;
    return true;
  }
  return frames == 0 || Resample(mono_.data(), frames, out);
}

bool MonoResampler::Finish(std::vector<float>* out) {
  out->clear();
  return rate_ == kModelRate || Resample(nullptr, 0, out);
}

bool MonoResampler::Resample(const float* samples, size_t count,
                             std::vector<float>* out) {
  out->clear();
  if (!is_open_) return false;
  // More than one call can give; the rest of the delay comes at the end.
  constexpr size_t kStep = 4096;
  size_t used = 0;
  while (true) {
    const size_t before = out->size();
    out->resize(before + kStep);
    size_t read = 0;
    size_t made = 0;
    const soxr_error_t error =
        soxr_process(soxr_, samples == nullptr ? nullptr : samples + used,
                     count - used, &read, out->data() + before, kStep, &made);
    out->resize(before + made);
    if (error != nullptr) return false;
    used += read;
    if (used == count && made < kStep) return true;
  }
}

}  // namespace ballast::audio_decoder
