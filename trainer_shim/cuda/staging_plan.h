#ifndef BALLAST_TRAINER_SHIM_CUDA_STAGING_PLAN_H_
#define BALLAST_TRAINER_SHIM_CUDA_STAGING_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/patchify.h"

namespace ballast {

// The places of all parts of one micro-batch in a rank's device memory. Plain
// values and pure functions, without CUDA.

// Header that two ranks send to each other before the samples that they
// exchange. If their headers differ, they follow different schedules.
struct ExchangeHeader {
  uint64_t fingerprint =
      0;               // its first 11 digits; below them the sender's rank
  uint64_t place = 0;  // step * 2^24 + micro-batch
};
static_assert(sizeof(ExchangeHeader) == 16);
inline constexpr int kHeaderRankBits = 20;
inline constexpr uint64_t kHeaderRankMask =
    (uint64_t{1} << kHeaderRankBits) - 1;

ExchangeHeader GetHeader(const BlockHeader& block);

// A sequence as input of the pack kernel. cu_seqlens_padded gives its place in
// the batch.
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

// An image that passed through encoded: its file as it arrives, and the place
// of its pixels.
struct EncodedSource {
  uint32_t sample = 0;  // index into ExchangePlan::owned
  uint32_t image = 0;   // index into ExchangePlan::images
  // Offset in the rank's block or, if the sample is received, in the received
  // bytes.
  uint64_t file = 0;
  uint64_t pixels = 0;  // offset in the landing buffer
};

// Bytes of features of audio that stay together: those of a sample, and
// samples, without padding between them.
struct FeatureRun {
  uint64_t from = 0;   // offset in the landing buffer
  uint64_t to = 0;     // offset in input_features
  uint64_t bytes = 0;  // above 0
};

// The landing buffer: the rank's block as pulled, the received bytes, the
// pixels of images that passed through encoded, and the pixels of a dummy
// image. Parts begin at multiples of 256.
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
// one piece.
struct UploadLayout {
  uint64_t header = 0;   // ExchangeHeader, the rank's own
  uint64_t records = 0;  // RecordCheck [samples]
  uint64_t texts = 0;    // TextSource [sequences]
  uint64_t places = 0;   // int32 [sequences + 1]: TextLayout::cu_seqlens_padded
  uint64_t images = 0;   // PatchifyImage [images]
  uint64_t frames = 0;   // PatchifyImage [temporal patches of videos]
  uint64_t lists = 0;    // the batch's lists, used in place as its tensors
  uint64_t bytes = 0;
};

// The memory that the kernels write: the batch's packed tensors and the other
// data that a broadcast to tensor peers sends.
struct OutputLayout {
  // uint8 [samples]: device copy of DeviceBatch::placeholders.
  uint64_t placeholders = 0;
  // ExchangeHeader, which tensor rank 0 sends with the tensors to its peers.
  uint64_t header = 0;
  uint64_t bytes = 0;  // 0: no tensors
};

struct StagingPlan {
  LandingLayout landing;
  UploadLayout upload;
  OutputLayout output;
  uint32_t samples = 0;
  uint32_t sequences = 0;   // BatchInfo::sequences
  uint32_t images = 0;      // crops, including a dummy image
  uint32_t frames = 0;      // temporal patches of videos
  uint64_t tokens = 0;      // of this context rank: T / context.size
  uint64_t rows = 0;        // of pixel_values
  uint64_t video_rows = 0;  // of pixel_values_videos
  // In the order of the batch's images.
  std::vector<EncodedSource> encoded;
  bool receives_encoded = false;  // some of them are received
  // The features of audio without a dummy clip, in the order of the batch.
  std::vector<FeatureRun> features;
  ByteRun silence;  // of input_features: the dummy clip, or nothing
};

// Plans one micro-batch from its `exchange` and `layout`, of which `info` is
// the batch.
StagingPlan PlanStaging(const ExchangePlan& exchange, const BatchLayout& layout,
                        const BatchInfo& info);

// Writes the arrays of the upload; `out` has plan.upload.bytes.
void FillUpload(const StagingPlan& plan, const ExchangePlan& exchange,
                const BatchLayout& layout, const BatchInfo& info,
                absl::Span<uint8_t> out);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_STAGING_PLAN_H_
