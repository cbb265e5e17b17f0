#include "server/schedule/micro_batch_schedule.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "server/schedule/encoder_placement.h"

namespace ballast {
namespace {

// `images_before`: the entries of images that the samples before it have.
void AddSample(const ScheduledSample& sample, int images_before,
               v1::MicroBatchSchedule* out) {
  out->add_position(sample.position);
  out->add_source(sample.sample.source);
  out->add_ordinal(sample.sample.ordinal);
  out->add_images(sample.size.images);
  // One entry for each image, once one has several crops.
  auto& crops = *out->mutable_crops();
  if (!sample.size.crops.empty()) {
    crops.Resize(images_before, 1);
    crops.Add(sample.size.crops.begin(), sample.size.crops.end());
  } else if (!crops.empty()) {
    crops.Resize(images_before + static_cast<int>(sample.size.images), 1);
  }
  // Likewise, once one is a video.
  auto& grid_t = *out->mutable_grid_t();
  auto& seconds = *out->mutable_seconds_per_patch();
  if (!sample.size.grid_t.empty()) {
    grid_t.Resize(images_before, 0);
    seconds.Resize(images_before, 0);
    grid_t.Add(sample.size.grid_t.begin(), sample.size.grid_t.end());
    seconds.Add(sample.size.seconds_per_patch.begin(),
                sample.size.seconds_per_patch.end());
  } else if (!grid_t.empty()) {
    const int images = images_before + static_cast<int>(sample.size.images);
    grid_t.Resize(images, 0);
    seconds.Resize(images, 0);
  }
  for (const ImageSize& sides : sample.size.sides) {
    out->add_image_height(sides.height);
    out->add_image_width(sides.width);
  }
  for (const ImageGrid& grid : sample.size.grids) {
    out->add_grid_h(grid.grid_h);
    out->add_grid_w(grid.grid_w);
  }
  // One entry for each crop, once one passes through encoded.
  const std::vector<uint32_t>& encoded = sample.size.encoded_bytes;
  auto& column = *out->mutable_encoded_bytes();
  if (!encoded.empty()) {
    column.Resize(out->grid_h_size() - encoded.size(), 0);
    column.Add(encoded.begin(), encoded.end());
  } else if (!column.empty()) {
    column.Resize(out->grid_h_size(), 0);
  }
  // One entry for each sample, once one has audio.
  if (!sample.size.clip_rows.empty() || !out->clips().empty()) {
    out->mutable_clips()->Resize(out->position_size(), 0);
    out->set_clips(out->position_size() - 1, sample.size.clip_rows.size());
  }
  out->mutable_clip_rows()->Add(sample.size.clip_rows.begin(),
                                sample.size.clip_rows.end());
  out->mutable_clip_frames()->Add(sample.size.clip_frames.begin(),
                                  sample.size.clip_frames.end());
  out->mutable_clip_tokens()->Add(sample.size.clip_tokens.begin(),
                                  sample.size.clip_tokens.end());
  // One entry for each sample, once one is a preference pair.
  if (sample.size.first_tokens != 0 || !out->first_tokens().empty()) {
    out->mutable_first_tokens()->Resize(out->position_size(), 0);
    out->set_first_tokens(out->position_size() - 1, sample.size.first_tokens);
  }
  out->add_tokens(sample.size.tokens);
  out->add_label_tokens(sample.size.label_tokens);
}

// A sample with its group and its place in the micro-batch.
struct PlacedSample {
  uint32_t sample;
  uint32_t group;
  uint32_t place;
};

// All samples of the micro-batch, which are some of `samples`, in ascending
// order of position.
std::vector<PlacedSample> PlaceSamples(const Ownership& ownership,
                                       size_t samples) {
  constexpr uint32_t kElsewhere = std::numeric_limits<uint32_t>::max();
  std::vector<PlacedSample> by_sample(samples, {0, kElsewhere, 0});
  uint32_t places = 0;
  for (uint32_t g = 0; g < ownership.groups.size(); ++g) {
    for (const uint32_t i : ownership.groups[g])
      by_sample[i] = {i, g, places++};
  }
  std::vector<PlacedSample> placed;
  placed.reserve(places);
  for (const PlacedSample& each : by_sample) {
    if (each.group != kElsewhere) placed.push_back(each);
  }
  return placed;
}

// Adds the costs, readers, owners, loads and dummies of one module.
void AddModule(const std::vector<ScheduledSample>& samples,
               const std::vector<PlacedSample>& placed,
               const MicroBatchShape& shape, const ModuleRanks& ranks,
               const Ownership& ownership, const Ownership::OfModule& owned,
               v1::MicroBatchSchedule* out) {
  const ModuleCost& coefficients = FindCost(ranks.module, shape);
  // The rank of each sample, if the module's owners are chosen separately.
  std::vector<uint32_t> rank_of(owned.groups.empty() ? 0 : samples.size());
  for (uint32_t r = 0; r < owned.groups.size(); ++r) {
    for (const uint32_t i : owned.groups[r]) rank_of[i] = r;
  }
  v1::ModuleSchedule& module = *out->add_modules();
  module.set_module(ranks.module);
  std::vector<double> before(ranks.dp, 0), after(ranks.dp, 0);
  for (const PlacedSample& each : placed) {
    const double cost = SampleCost(samples[each.sample].size, coefficients);
    const uint32_t reader = GetReader(each.sample, ranks, shape);
    const uint32_t owner =
        rank_of.empty() ? each.group / (ownership.groups.size() / ranks.dp)
                        : rank_of[each.sample];
    module.add_cost(cost);
    module.add_reader(reader);
    module.add_owner(owner);
    before[reader] += cost;
    uint32_t shared = 1;
    if (!ownership.pack_ranks.empty() && IsLanguage(ranks.module)) {
      shared = ownership.pack_ranks[each.group];
      module.add_pack_ranks(shared);
    }
    for (uint32_t k = 0; k < shared; ++k) after[owner + k] += cost / shared;
  }
  module.mutable_load_before()->Add(before.begin(), before.end());
  module.mutable_load_after()->Add(after.begin(), after.end());
  module.mutable_dummy_rank()->Add(owned.dummy_ranks.begin(),
                                   owned.dummy_ranks.end());
}

// Counts the embeddings that move from all encoders, with balance.placement
// `split`. A sample's home is its language owner, or each of the ranks that
// share its pack.
void CountEmbeddings(const std::vector<ScheduledSample>& samples,
                     const std::vector<PlacedSample>& placed,
                     const MicroBatchShape& shape,
                     v1::MicroBatchSchedule* out) {
  v1::EmbeddingsMoved& total =
      *out->mutable_totals()->mutable_embeddings_moved();
  const v1::ModuleSchedule& language = *FindModule(*out, v1::MODULE_LANGUAGE);
  const ServerOfRank& homes = GetLanguage(shape).server_of_rank;
  for (size_t m = 0; m < shape.modules.size(); ++m) {
    const ModuleRanks& ranks = shape.modules[m];
    if (ranks.media == Media::kText) continue;
    std::vector<EncoderSample> moved;
    std::vector<uint32_t> owners;
    for (size_t k = 0; k < placed.size(); ++k) {
      const SampleSize& size = samples[placed[k].sample].size;
      const int64_t tokens = EmbeddingTokens(size, ranks.media, shape);
      for (uint32_t r = 0; r < PackRanks(language, k); ++r) {
        moved.push_back({0, tokens, language.owner(k) + r});
        owners.push_back(out->modules(m).owner(k));
      }
    }
    const MovedTokens tokens = CountMovedTokens(
        moved, owners, homes, ranks.server_of_rank, shape.colocated);
    total.set_tokens_within_servers(total.tokens_within_servers() +
                                    tokens.within_servers);
    total.set_tokens_between_servers(total.tokens_between_servers() +
                                     tokens.between_servers);
  }
}

}  // namespace

v1::MicroBatchSchedule MakeMicroBatch(
    const std::vector<ScheduledSample>& samples, const Ownership& ownership,
    uint32_t number, const MicroBatchShape& shape) {
  const std::vector<PlacedSample> placed =
      PlaceSamples(ownership, samples.size());
  v1::MicroBatchSchedule out;
  uint32_t images = 0;
  for (const PlacedSample& each : placed) {
    AddSample(samples[each.sample], static_cast<int>(images), &out);
    images += samples[each.sample].size.images;
    out.add_slot(number);
    out.add_place(each.place);
  }
  *out.mutable_totals() = SumColumns(out);
  for (size_t m = 0; m < shape.modules.size(); ++m) {
    AddModule(samples, placed, shape, shape.modules[m], ownership,
              ownership.modules[m], &out);
  }
  if (shape.balance.placement() == v1::Balance::PLACEMENT_SPLIT) {
    CountEmbeddings(samples, placed, shape, &out);
  }
  return out;
}

}  // namespace ballast
