#ifndef BALLAST_SERVER_AUDIO_DECODER_MONO_RESAMPLER_H_
#define BALLAST_SERVER_AUDIO_DECODER_MONO_RESAMPLER_H_

#include <soxr.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ballast::audio_decoder {

// The mean of a stream's channels at the models' rate, as librosa.load gives
// it: float32, soxr HQ. Thread-compatible.
class MonoResampler {
 public:
  MonoResampler(uint32_t rate, uint32_t channels);
  ~MonoResampler();
  MonoResampler(const MonoResampler&) = delete;
  MonoResampler& operator=(const MonoResampler&) = delete;

  // Replaces *out by what follows from the next `frames` interleaved frames.
  // False: soxr has failed.
  bool Add(const float* interleaved, size_t frames, std::vector<float>* out);
  // Likewise from the end of the stream.
  bool Finish(std::vector<float>* out);

 private:
  bool Resample(const float* samples, size_t count, std::vector<float>* out);

  const uint32_t rate_;
  const uint32_t channels_;
  soxr_t soxr_ = nullptr;  // null where the rates are equal
  bool is_open_ = true;
  std::vector<float> mono_;
};

}  // namespace ballast::audio_decoder

#endif  // BALLAST_SERVER_AUDIO_DECODER_MONO_RESAMPLER_H_
