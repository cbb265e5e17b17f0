#ifndef BALLAST_TRAINER_SHIM_RESAMPLE_PLAN_H_
#define BALLAST_TRAINER_SHIM_RESAMPLE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/image/engine_jpeg.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {

// An image whose planes become resized RGB pixels. Offsets are bytes from the
// first plane and the first pixel of the batch.
struct ResampleRequest {
  PlaneForm form;
  uint32_t out_width = 0;
  uint32_t out_height = 0;
  uint64_t planes = 0;  // laid out by LayOutPlanes
  uint64_t out = 0;     // [out_height, out_width, 3] 8-bit RGB
};

// The source samples that contribute to an output sample of an axis. Weights of
// neighbouring output samples are adjacent, since neighbouring threads read
// them together. Consecutive weights of one output sample are as many entries
// apart as the axis has output samples.
struct AxisTaps {
  uint32_t first = 0;    // source sample
  uint32_t count = 0;    // at least 1
  uint32_t weights = 0;  // index of the first of `count` weights
};
static_assert(sizeof(AxisTaps) == 12);

// One image as host and device both read it. The narrow rows are the result of
// the horizontal pass: [height][out_width, 3] bytes, `narrow_pitch` apart.
struct ResampleImage {
  uint64_t planes[3];
  uint64_t narrow;  // bytes from the first narrow row of the batch
  uint64_t out;
  uint32_t pitch[3];
  uint32_t narrow_pitch;  // a multiple of 4
  uint32_t width, height;
  uint32_t chroma_width, chroma_height;
  uint32_t out_width, out_height;
  uint32_t columns, rows;  // indices of the first taps of each axis
  uint32_t first_row;      // rows of the images before
  uint32_t first_out_row;
  ChromaSampling sampling;
  VideoColours colours;  // of a video
};
static_assert(sizeof(ResampleImage) == 112);

// The inputs of a batch's two passes, in addition to planes and memory. Weights
// are a filter's, as a library computes them (proto/image/resample_weights.h),
// computed on the host.
struct ResamplePlan {
  std::vector<ResampleImage> images;
  std::vector<AxisTaps> taps;
  std::vector<int32_t> weights;
  uint32_t rows = 0;          // of all images
  uint32_t out_rows = 0;      // likewise
  uint32_t most_width = 0;    // of a source image
  uint64_t narrow_bytes = 0;  // of all narrow rows
};

// The numbers of a video's form, from the matrix's as libswscale has them.
VideoColours GetVideoColours(VideoMatrix matrix, bool is_full);

// Bytes of memory that an image takes while it is decoded: planes and narrow
// rows.
uint64_t DecodeMemory(const ResampleRequest& request);

// Plans batches, along the width first; images that a library resizes along
// the height first are sent as pixels (proto/image/job_images.h). Weights
// of an axis are computed once for each pair of lengths and kept, since
// photographs come in few sizes. Plans reuse their memory. Thread-compatible.
class ResamplePlanner {
 public:
  // Bytes of kept weights above which a new axis takes the memory of the one
  // that was used longest ago. Axes of the current plan are kept even beyond
  // this limit.
  static constexpr size_t kMaxKept = size_t{8} << 20;

  // `resampling` is for all images.
  explicit ResamplePlanner(const Resampling& resampling = {})
      : resampling_(resampling) {}

  // Plans `requests`, whose sizes JudgeForEngines has bounded. Valid until the
  // next call. Errors: INVALID_ARGUMENT (a side of 0; a batch of more than 2^31
  // rows or weights; an image that the library resizes along the height first).
  absl::Status Plan(absl::Span<const ResampleRequest> requests);
  const ResamplePlan& plan() const { return plan_; }
  // Hands the plan out, and takes `plan`'s memory for the next one.
  void SwapPlan(ResamplePlan* plan) { std::swap(plan_, *plan); }

  // Bytes of kept weights.
  size_t kept() const { return kept_; }

 private:
  struct Axis {
    std::vector<AxisTaps> taps;  // weights count from the axis's first
    std::vector<int32_t> weights;
    uint64_t plan = 0;   // the plan that last used it
    uint32_t index = 0;  // of its first taps in that plan

    size_t bytes() const {
      return taps.capacity() * sizeof(AxisTaps) +
             weights.capacity() * sizeof(int32_t);
    }
  };
  using Axes = std::map<std::pair<uint32_t, uint32_t>, Axis>;

  // The axis between two lengths; computes one that is not kept.
  Axis& Find(uint32_t source, uint32_t output);
  void Compute(uint32_t source, uint32_t output, Axis* axis) const;
  // The index of an axis's taps in the plan.
  uint32_t Add(uint32_t source, uint32_t output);

  const Resampling resampling_;
  ResamplePlan plan_;
  Axes axes_;
  size_t kept_ = 0;  // bytes of axes_
  uint64_t plans_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_RESAMPLE_PLAN_H_
