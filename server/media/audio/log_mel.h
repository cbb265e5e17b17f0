#ifndef BALLAST_SERVER_MEDIA_AUDIO_LOG_MEL_H_
#define BALLAST_SERVER_MEDIA_AUDIO_LOG_MEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/audio_family.pb.h"
#include "server/media/audio/audio_plan.h"
#include "server/media/audio/fourier.h"

namespace ballast {

// Tables of a family, for the vector code.
struct LogMelWindow {
  std::vector<double> weights;  // of each point of the transform
  size_t hop = 0;
  size_t seen = 0;  // points; the others are 0
  // As AudioFamily.Features has them; `first` is the first sample's factor.
  float preemphasis = 0;
  float first = 1;
  float gain = 1;
  bool is_single = false;  // the product with the window is a float32
};
struct LogMelFilters {
  struct Bins {
    size_t first = 0;
    size_t count = 0;
  };
  std::vector<Bins> bins;       // of each filter
  std::vector<double> weights;  // of each bin of each filter
  double floor = 0;             // above 0
  bool add_floor = false;
  double scale = 1;  // of the natural logarithm
};

// Computes a model's features of audio on the CPU: samples, window and values
// in float32, as processors have them, and all between in float64. The same on
// every machine. Thread-compatible: keeps buffers between calls.
class LogMel {
 public:
  // Errors: INVALID_ARGUMENT (a transform that Fourier does not take).
  static absl::StatusOr<LogMel> Create(const v1::AudioFamily& family);

  // Numbers of a frame.
  size_t width() const;

  // The first `frames` frames of the clip's tensor, row by row: width() numbers
  // each. `samples` is the clip, of which plan.samples are read; `frames` is at
  // most plan.shape. Errors: INVALID_ARGUMENT (fewer samples than planned, more
  // frames than there are).
  absl::StatusOr<std::vector<float>> Compute(const AudioPlan& plan,
                                             absl::Span<const float> samples,
                                             uint64_t frames);

 private:
  static constexpr size_t kLanes = Fourier::kLanes;

  LogMel(const v1::AudioFamily& family, Fourier fourier);

  // Rows from 0 up to the last that sees a sample of the clip; the other rows
  // are silence.
  uint64_t CountSounding(const AudioPlan& plan) const;
  // Samples from `first` on of the padded clip with its left padding.
  void CopySamples(const AudioPlan& plan, absl::Span<const float> clip,
                   uint64_t first, absl::Span<float> to) const;
  // Computes `count` rows from `row` on, up to the logarithm.
  void AddRows(const AudioPlan& plan, absl::Span<const float> clip,
               uint64_t row, size_t count, float* values);
  // What follows the logarithm.
  void Finish(std::vector<float>* values) const;

  v1::AudioFamily family_;
  Fourier fourier_;
  LogMelWindow window_;
  LogMelFilters filters_;
  std::vector<float> stretch_;
  std::vector<double> frame_;
  std::vector<double> power_;
  std::vector<float> logarithms_;
  Fourier::Scratch scratch_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_LOG_MEL_H_
