#ifndef BALLAST_SERVER_SCHEDULE_COST_MODEL_H_
#define BALLAST_SERVER_SCHEDULE_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/sample/source_index.h"

namespace ballast {

// Converts costs to integers, whose sums depend neither on their order nor on
// the machine. All are scaled by the same power of two, at most 2^16, such that
// `bound`, which is at least their sum, stays below 2^60. Exact for integer
// costs, such as patch and token counts. Costs are finite and not negative.
std::vector<int64_t> FixedPoint(absl::Span<const double> costs, double bound);

// A sample's size once its images are resized.
struct SampleSize {
  uint64_t patches = 0;
  uint32_t tokens = 0;  // real tokens, image placeholders included
  uint32_t label_tokens = 0;
  // The tokens among `tokens` of the first of two sequences; 0: it is one.
  uint32_t first_tokens = 0;
  std::vector<ImageGrid> grids;  // one for each crop
  // For each crop: the length of its image's file if it passes through encoded,
  // else 0. An image may pass through if both the index
  // (IndexedSample::encoded_bytes) and the model
  // (ModelImages::Share::may_travel_encoded) allow it. Empty if all are sent as
  // pixels. DeviceShare may leave some of them to the servers.
  std::vector<uint32_t> encoded_bytes;
  uint32_t images = 0;  // and videos, in the order of MediaList
  uint32_t videos = 0;
  // For each image: number of its crops. Empty if each is one.
  std::vector<uint32_t> crops;
  // For each image: temporal patches of a video and the seconds between two, as
  // in MicroBatchSchedule. Empty if there is no video.
  std::vector<uint32_t> grid_t;
  std::vector<float> seconds_per_patch;
  // For each image, if the model requests them; else empty.
  std::vector<ImageSize> sides;
  // For each clip of audio: rows of features, how many of them count, and
  // placeholders.
  std::vector<uint32_t> clip_rows;
  std::vector<uint32_t> clip_frames;
  std::vector<uint32_t> clip_tokens;
};

// Computes a sample's size from its entry in the index. `images` has the
// entry's images, and what a recipe's plans depend on besides sides. Errors:
// INVALID_ARGUMENT (an image that cannot be resized; more than 2^32-1 tokens;
// an image of several crops that the index lets pass through encoded; a video
// or a clip of audio that cannot be planned, or of a model that takes none).
absl::StatusOr<SampleSize> MeasureSample(const IndexedSample& sample,
                                         const SampleImages& images,
                                         const ModelImages& model);

// The sample's tokens with each sequence padded to a multiple of `align`.
uint64_t PaddedTokens(const SampleSize& size, uint32_t align);

// The sum over sequences of their squared padded lengths.
uint64_t PaddedSquares(const SampleSize& size, uint32_t align);

// Whether the sample has something for a module that takes `media`.
bool HasMedia(const SampleSize& size, Media media);

// The coefficients of a module's cost. A plain value.
struct ModuleCost {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  Media media = Media::kNone;
  double linear = 0;
  double quadratic = 0;
};

// The costs of all modules that a configuration may have, in the order of
// ModuleKinds().
std::vector<ModuleCost> GetModuleCosts(const v1::Balance::Cost& cost);

// The sample's cost for a module, by the media that it takes:
//   images  linear*n + sum over crops of quadratic*m*m; n = patches of the
//           sample, m = patches of the crop, since towers attend within one; a
//           video counts its temporal patches as crops
//   audio   the same, n = frames of the sample, m = frames of a clip
//   text    linear*n + sum over sequences of quadratic*m*m; n = tokens of the
//           sample, m = tokens of the sequence
// evaluated in that order in IEEE doubles, so every machine gets the same cost.
double SampleCost(const SampleSize& size, const ModuleCost& cost);

// The coefficients in effect at step `step`: the last entry of cost_changes
// whose step is at most `step`, or else balance.cost.
const v1::Balance::Cost& CostAt(const v1::Balance& balance, uint64_t step);

// The sum of SampleCost over `costs`, in their order. Schedules sum over all
// modules, whichever are configured, so that every module derives the same
// cost.
double JointCost(const SampleSize& size, absl::Span<const ModuleCost> costs);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_COST_MODEL_H_
