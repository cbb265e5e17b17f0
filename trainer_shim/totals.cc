#include "trainer_shim/totals.h"

#include <algorithm>

#include "common/aligned_buffer.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {

uint64_t RowLength(const v1::MicroBatchSchedule& micro_batch,
                   const SamplePadding& padding) {
  if (!padding.rows) return 0;
  if (padding.row_length != 0) return padding.row_length;
  uint64_t longest = 0;
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    ForEachSequence(micro_batch.tokens(i), FirstTokens(micro_batch, i),
                    [&](uint64_t n) { longest = std::max(longest, n); });
  }
  return AlignUp(longest, padding.align);
}

PackedTotals& PackedTotals::operator+=(const PackedTotals& other) {
  samples += other.samples;
  tokens += other.tokens;
  tokens_squared += other.tokens_squared;
  padded_tokens += other.padded_tokens;
  padded_tokens_squared += other.padded_tokens_squared;
  label_tokens += other.label_tokens;
  patches += other.patches;
  images += other.images;
  videos += other.videos;
  clips += other.clips;
  frames += other.frames;
  return *this;
}

PackedTotals SumTotals(const v1::MicroBatchSchedule& micro_batch,
                       const SamplePadding& padding,
                       const std::optional<v1::Role>& owner) {
  PackedTotals totals;
  const v1::ModuleSchedule* module =
      owner ? FindModule(micro_batch, owner->module()) : nullptr;
  if (owner && module == nullptr) return totals;
  const std::vector<uint64_t> patches = SamplePatches(micro_batch);
  const std::vector<uint32_t> videos = SampleVideos(micro_batch);
  const std::vector<uint64_t> frames = SampleFrames(micro_batch);
  const uint64_t row = RowLength(micro_batch, padding);
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    PackedTotals sample;
    sample.samples = 1;
    sample.tokens = micro_batch.tokens(i);
    ForEachSequence(micro_batch.tokens(i), FirstTokens(micro_batch, i),
                    [&](uint64_t n) {
                      const uint64_t padded =
                          padding.rows ? row : AlignUp(n, padding.align);
                      sample.tokens_squared += n * n;
                      sample.padded_tokens += padded;
                      sample.padded_tokens_squared += padded * padded;
                    });
    sample.label_tokens = micro_batch.label_tokens(i);
    sample.images = micro_batch.images(i) - videos[i];
    sample.videos = videos[i];
    sample.patches = patches[i];
    sample.clips = micro_batch.clips().empty() ? 0 : micro_batch.clips(i);
    sample.frames = frames[i];
    if (!owner || TrainsOn(*module, i, owner->dp_rank())) totals += sample;
  }
  return totals;
}

}  // namespace ballast
