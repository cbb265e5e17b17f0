#ifndef BALLAST_TRAINER_SHIM_HOST_PATCHIFY_H_
#define BALLAST_TRAINER_SHIM_HOST_PATCHIFY_H_

#include <array>
#include <cstdint>

namespace ballast {

// The type of pixel_values; bfloat16 as its bits.
enum class PixelType { kFloat32, kBfloat16 };

// The nearest bfloat16 of a finite float, ties to even, as its 16 bits.
uint16_t ToBfloat16(float value);

// The two formulas by which Hugging Face's processors normalise; their results
// differ in the last bits.
enum class Normalisation {
  // Qwen2VLImageProcessor: (x - 255*mean) / (255*std), all float32.
  kTorchvision,
  // Qwen2VLImageProcessorPil: float32(float64(x) / 255), then (x - mean) / std
  // in float32.
  kPil,
};

// The normalised value of every byte. Pixels are 8-bit, so normalising is one
// look-up and exact by construction.
class NormaliseTable {
 public:
  // `mean` and `std` are of RGB scaled to [0,1]; no std is 0.
  NormaliseTable(const std::array<double, 3>& mean,
                 const std::array<double, 3>& std, Normalisation formula);

  const std::array<float, 256>& floats(int channel) const {
    return floats_[channel];
  }
  const std::array<uint16_t, 256>& bfloat16s(int channel) const {
    return bfloat16s_[channel];
  }

 private:
  std::array<std::array<float, 256>, 3> floats_;
  std::array<std::array<uint16_t, 256>, 3> bfloat16s_;
};

// Sides of patches, as the model's processor has them.
struct PatchShape {
  uint32_t patch = 14;          // p: pixels per side
  uint32_t merge = 2;           // m: patches per side that become one token
  uint32_t temporal_patch = 2;  // Tp: times that a still image is repeated

  // Values of one row of pixel_values.
  uint64_t row() const { return uint64_t{3} * temporal_patch * patch * patch; }
};

// Normalises one still image and cuts it into patches, in the order of
// Qwen2VLImageProcessor:
//
//   row of patch (gh, gw):        ((gh/m)*(W/m) + gw/m)*m*m + (gh%m)*m + gw%m
//   column of value (c, tp, y, x): ((c*Tp + tp)*p + y)*p + x
//
// `rgb`: [grid_h*p, grid_w*p, 3] 8-bit. `out`: [grid_h*grid_w, row()] values.
// Both sides of the grid are multiples of m. Sizes are not checked.
void Patchify(const uint8_t* rgb, uint32_t grid_h, uint32_t grid_w,
              const PatchShape& shape, const NormaliseTable& table, float* out);
void PatchifyBfloat16(const uint8_t* rgb, uint32_t grid_h, uint32_t grid_w,
                      const PatchShape& shape, const NormaliseTable& table,
                      uint16_t* out);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PATCHIFY_H_
