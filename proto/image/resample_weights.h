#ifndef BALLAST_PROTO_IMAGE_RESAMPLE_WEIGHTS_H_
#define BALLAST_PROTO_IMAGE_RESAMPLE_WEIGHTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ballast {

// Fraction bits of a weight: 32 minus 8 for the pixel, minus 2 so that sums
// with weights below 0 or above 1 do not overflow.
inline constexpr int kWeightBits = 32 - 8 - 2;

enum class ResampleFilter {
  kBox,
  kBilinear,
  kBicubic,
  kLanczos,
  // OpenCV's INTER_CUBIC (a = -0.75): four source pixels, also when shrinking;
  // at a border its pixel stands for those beyond. The library of a Resampling
  // does not matter.
  kOpenCvCubic
};

// The library whose pixels are reproduced, bit for bit. Pillow 12 and 13 have
// the same weights and differ in the order of their passes
// (proto/image/job_images.h). torchvision uses PyTorch's kernel for
// antialiased uint8: weights of 16 bits.
enum class ResampleLibrary { kPillow12, kPillow13, kTorchvision };

struct Resampling {
  ResampleFilter filter = ResampleFilter::kBicubic;
  ResampleLibrary library = ResampleLibrary::kPillow12;

  friend bool operator==(const Resampling&, const Resampling&) = default;
};

// Source pixels on either side of the centre that the filter reaches when it
// does not shrink. At most 3.
double FilterRadius(ResampleFilter filter);

// The source pixels of a row or column that contribute to an output pixel.
struct ResampleTaps {
  uint32_t first = 0;  // source pixel
  uint32_t count = 0;  // source pixels, at least 1
  size_t weights = 0;  // index of the first of `count` weights
};

// A filter between two lengths. When shrinking, all filters but kOpenCvCubic are
// widened by the ratio, so that every source pixel counts.
struct ResampleWeights {
  std::vector<ResampleTaps> taps;  // one an output pixel, `first` ascending
  std::vector<int32_t> weights;    // in units of 2^-kWeightBits
};

// Computes a filter's weights, bit for bit as the library does. torchvision's
// weights are multiplied by a power of two, so that sums in units of
// 2^-kWeightBits also have the library's bits. Bicubic has a = -0.5 in all
// libraries. Uses AVX2 for bicubic if the processor has it. Thread-compatible.
class FilterWeights {
 public:
  // Number of output pixels whose weights are computed together.
  static constexpr uint32_t kGroup = 4;
  struct Group {
    std::array<uint32_t, kGroup> first;  // source pixel
    std::array<uint32_t, kGroup> count;  // source pixels
    // Row t has a weight of each pixel, for its source pixel `first` + t. 0
    // from its `count` on.
    std::vector<std::array<int32_t, kGroup>> rows;
  };

  // Neither length is 0.
  FilterWeights(uint32_t source, uint32_t output,
                const Resampling& resampling = {});

  // Upper bound on the taps of an output pixel.
  uint32_t most_taps() const { return static_cast<uint32_t>(2 * support_) + 2; }

  // Without AVX2. For tests.
  void UsePlainCode() { has_avx2_ = false; }

  // The weights of the output pixels from `begin` on, a multiple of kGroup. Its
  // entries after the last output pixel mean nothing. Valid until the next
  // call.
  const Group& WeightsOfGroup(uint32_t begin);

  // The weights of output pixel `i`, for the source pixels from `first` on.
  // Valid until the next call.
  const std::vector<int32_t>& Weights(uint32_t i, uint32_t* first);

 private:
  static constexpr uint32_t kNone = 0xffffffff;

  // Fills group_.first, group_.count and exact_.
  void ComputeExact(uint32_t begin);
  void ComputeOpenCv(uint32_t begin);

  ResampleFilter filter_;
  uint32_t source_;
  double scale_;
  double narrowing_;
  double support_;
  bool has_avx2_;
  int fraction_bits_ = kWeightBits;  // of a weight as the library rounds it
  uint32_t begin_ = kNone;           // of group_
  std::vector<std::array<double, kGroup>> exact_;  // as Group::rows
  Group group_;
  std::vector<int32_t> of_pixel_;
};

// The weights of all output pixels. Neither length is 0.
ResampleWeights AllWeights(uint32_t source, uint32_t output,
                           const Resampling& resampling);

// Rounds the sum of weight * pixel and clips it to 0..255. `sum` must have
// started from 1 << (kWeightBits - 1).
inline uint8_t ClipWeightedSum(int32_t sum) {
  const int32_t value = sum >> kWeightBits;
  return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Whether the processor has AVX2 and the compiler made code for it, which
// FilterWeights then uses.
bool HasCubicWeightsAvx2();

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_RESAMPLE_WEIGHTS_H_
