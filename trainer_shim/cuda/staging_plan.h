#ifndef BALLAST_TRAINER_SHIM_CUDA_STAGING_PLAN_H_
#define BALLAST_TRAINER_SHIM_CUDA_STAGING_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/host/patchify_images.h"
#include "trainer_shim/job_shape.h"

namespace ballast {

// The places of all parts of one micro-batch in a rank's device memory. Plain
// values and pure functions, without CUDA.

// Header that two ranks send each other before the samples that they exchange.
// If their headers differ, they follow different schedules.
struct ExchangeHeader {
  uint64_t fingerprint =
      0;               // its first 11 digits; below them the sender's rank
  uint64_t place = 0;  // step * 2^24 + micro-batch
};
static_assert(sizeof(ExchangeHeader) == 16);
inline constexpr int kHeaderRankBits = 20;
inline constexpr uint64_t kHeaderRankMask =
    (uint64_t{1} << kHeaderRankBits) - 1;

ExchangeHeader HeaderOf(const BlockHeader& block);

// A language sample as input of the pack kernel. cu_seqlens_padded gives its
// place in the batch.
struct TextSource {
  uint64_t payload = 0;  // offset in the landing buffer
  uint64_t tokens = 0;   // real
};
static_assert(sizeof(TextSource) == 16);

// A record that must be in the landing buffer, except for kSampleIsPlaceholder.
struct RecordCheck {
  uint64_t record = 0;  // offset in the landing buffer
  SampleRecord expected = {};
};
static_assert(sizeof(RecordCheck) == 72);

// An image that travelled encoded: its file as it arrives, and the place of its
// pixels.
struct EncodedSource {
  uint32_t sample = 0;  // index into ExchangePlan::owned
  uint32_t image = 0;   // index into ExchangePlan::images
  // Offset in the rank's block or, if the sample is received, in what it
  // receives.
  uint64_t file = 0;
  uint64_t pixels = 0;  // offset in the landing buffer
};

// The landing buffer: the rank's block as pulled, the received bytes, the
// pixels of images that travelled encoded, and those of a dummy image. Parts
// begin at multiples of 256.
struct LandingLayout {
  uint64_t received = 0;  // offset
  uint64_t decoded = 0;   // offset
  uint64_t grey = 0;      // offset; kGreyPixel from here to the end
  uint64_t bytes = 0;

  // Converts an offset in a sample's own buffer to one in the landing buffer.
  uint64_t Of(const OwnedSample& sample, uint64_t offset) const {
    return sample.received ? received + offset : offset;
  }
};

// Offsets of the arrays that the host writes and the device reads, copied in
// one piece. Those of the batch are used in place as its tensors.
struct UploadLayout {
  uint64_t header = 0;      // ExchangeHeader, the rank's own
  uint64_t records = 0;     // RecordCheck [samples]
  uint64_t texts = 0;       // TextSource [samples]
  uint64_t images = 0;      // PatchifyImage [images]
  uint64_t frames = 0;      // PatchifyImage [temporal patches of videos]
  uint64_t cu_seqlens = 0;  // of the batch, as all below
  uint64_t cu_seqlens_padded = 0;
  uint64_t image_grid_thw = 0;
  uint64_t vision_cu_seqlens = 0;
  uint64_t video_grid_thw = 0;  // and two below: VideoLayout's
  uint64_t second_per_grid_ts = 0;
  uint64_t video_cu_seqlens = 0;
  uint64_t imgs_sizes = 0;  // and below: CropLayout's
  uint64_t crops_per_image = 0;
  uint64_t image_sizes = 0;
  uint64_t spatial_shapes = 0;
  uint64_t pixel_attention_mask = 0;
  uint64_t embedding_order = 0;
  uint64_t bytes = 0;
};

// Offsets of the batch's large tensors, which the kernels write. Tensors that
// the rank does not receive take no bytes.
struct OutputLayout {
  uint64_t input_ids = 0;
  uint64_t labels = 0;
  uint64_t loss_mask = 0;
  uint64_t position_ids = 0;
  uint64_t attention_mask = 0;  // packing.mode `padded`
  uint64_t pixel_values = 0;
  uint64_t pixel_values_videos = 0;
  // uint8 [samples]: device copy of DeviceBatch::placeholders, for the
  // broadcast to tensor peers.
  uint64_t placeholders = 0;
  uint64_t bytes = 0;
};

struct StagingPlan {
  LandingLayout landing;
  UploadLayout upload;
  OutputLayout output;
  uint32_t samples = 0;
  uint32_t images = 0;      // crops, including a dummy image
  uint32_t frames = 0;      // temporal patches of videos
  uint64_t tokens = 0;      // of this context rank: T / context.size
  uint64_t rows = 0;        // of pixel_values
  uint64_t video_rows = 0;  // of pixel_values_videos
  // In the order of the batch's images.
  std::vector<EncodedSource> encoded;
  bool receives_encoded = false;  // some of them are received
};

// Plans one micro-batch of a rank of `shape` from its `exchange` and `layout`.
StagingPlan PlanStaging(const ExchangePlan& exchange, const BatchLayout& layout,
                        const JobShape& shape, PixelType pixel_type);

// Writes the arrays of the upload; `out` has plan.upload.bytes.
void FillUpload(const StagingPlan& plan, const ExchangePlan& exchange,
                const BatchLayout& layout, absl::Span<uint8_t> out);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_STAGING_PLAN_H_
