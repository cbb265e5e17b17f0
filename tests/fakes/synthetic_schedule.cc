#include "tests/fakes/synthetic_schedule.h"

#include <algorithm>
#include <numeric>

namespace ballast {
namespace {

constexpr uint32_t kMaxMicroBatches = 3;  // dynamic jobs only
// Images of a sample, and clips of it.
constexpr uint32_t kMedia[] = {0, 1, 3, 1};

bool HasCrops(const SyntheticJob& job) {
  return job.form != v1::Model::IMAGE_FORM_MERGE_ORDER;
}

uint32_t TemporalPatchOf(const SyntheticJob& job) {
  const bool tiles = job.form == v1::Model::IMAGE_FORM_TILES;
  return job.form == v1::Model::IMAGE_FORM_PADDED || (tiles && job.videos) ? 1
                                                                           : 2;
}

// Adds a video to a sample that has `crop` crops before it, and returns its
// patches.
uint32_t AddVideo(const SyntheticJob& job, uint64_t position, uint32_t crop,
                  v1::MicroBatchSchedule* out) {
  const uint32_t frames = 1 + (position + crop) % 6;
  const uint32_t h = 2 * (1 + position % 3);
  const uint32_t w = 2 * (1 + (position + crop) % 4);
  for (uint32_t k = 0; k < frames; ++k) {
    out->add_grid_h(h);
    out->add_grid_w(w);
  }
  const uint32_t t = TemporalPatchOf(job) == 1 ? frames : (frames + 1) / 2;
  out->add_crops(frames);
  out->add_grid_t(t);
  out->add_seconds_per_patch(job.frames_are_crops ? 0 : 0.5f + position);
  if (HasCrops(job)) {
    out->add_image_height(300 + position);
    out->add_image_width(400 + crop);
  }
  return t * h * w;
}

// Up to 34 rows a clip. Every other sample's clips have two rows that do not
// count.
void AddClips(uint64_t position, v1::MicroBatchSchedule* out) {
  const uint32_t clips = kMedia[position % 4];
  out->add_clips(clips);
  for (uint32_t k = 0; k < clips; ++k) {
    const uint32_t frames = 1 + (position * 7 + k * 5) % 32;
    out->add_clip_frames(frames);
    out->add_clip_rows(frames + 2 * (position / 2 % 2));
  }
}

void AddSample(uint64_t position, const SyntheticJob& job,
               v1::MicroBatchSchedule* out) {
  const bool has_crops = HasCrops(job);
  out->add_source(position % 2);
  out->add_ordinal(position / 2);
  const uint32_t images = kMedia[position % 4];
  if (job.audio_dp > 0) AddClips(position, out);
  const uint32_t videos =
      job.videos && position % 3 == 0 ? 1 + (position % 6 == 0) : 0;
  out->add_images(images + videos);
  uint32_t patches = 0;
  uint32_t crop = 0;  // of the sample
  for (uint32_t k = 0; k < images; ++k) {
    const uint32_t crops = has_crops ? 1 + (position + k) % 3 : 1;
    for (uint32_t i = 0; i < crops; ++i, ++crop) {
      const uint32_t h = 2 * (1 + (position + crop) % 3);
      const uint32_t w = 2 * (1 + (position / 3 + 2 * crop) % 4);
      out->add_grid_h(h);
      out->add_grid_w(w);
      patches += h * w;
    }
    if (job.videos) {
      out->add_grid_t(0);
      out->add_seconds_per_patch(0);
    }
    if (job.videos || has_crops) out->add_crops(crops);
    if (!has_crops) continue;
    out->add_image_height(100 + position);
    out->add_image_width(200 + k);
  }
  for (uint32_t k = 0; k < videos; ++k) {
    patches += AddVideo(job, position, crop, out);
    crop += out->crops(out->crops_size() - 1);
  }
  const uint32_t text = 3 + position * 5 % 17;
  out->add_tokens(patches / 4 + text);
  out->add_label_tokens(text / 2);
}

// Puts even numbers first, then the odd ones, to separate neighbours.
uint32_t Deal(uint32_t i, uint32_t n) {
  return i % 2 == 0 ? i / 2 : (n + 1) / 2 + i / 2;
}

void AddModule(const SyntheticJob& job, v1::Module module, uint32_t dp,
               v1::MicroBatchSchedule* out) {
  const uint32_t samples = MicroBatchOf(job);
  const uint32_t grid = GetGrid(job);
  v1::ModuleSchedule* columns = out->add_modules();
  columns->set_module(module);
  for (uint32_t rank = 0; rank < dp; ++rank) {
    columns->add_load_before(0);
    columns->add_load_after(0);
  }
  for (uint32_t i = 0; i < samples; ++i) {
    const uint32_t reader = i / (samples / dp);
    uint32_t place = out->place(i);
    if (job.uneven && place > 0) --place;
    uint32_t owner = job.delivery == v1::DELIVERY_OFF
                         ? reader
                         : place / job.samples_per_group / (grid / dp);
    if (job.split && module == v1::MODULE_VISION) owner = 7 * place / 2 % dp;
    const double cost = out->tokens(i);
    columns->add_cost(cost);
    columns->add_reader(reader);
    columns->add_owner(owner);
    columns->set_load_before(reader, columns->load_before(reader) + cost);
    columns->set_load_after(owner, columns->load_after(owner) + cost);
  }
}

}  // namespace

const char kSyntheticFingerprint[] = "00112233445566778899aabbccddeeff";

uint32_t GetGrid(const SyntheticJob& job) {
  const uint32_t grid =
      std::lcm(std::max(job.vision_dp, 1u), std::max(job.language_dp, 1u));
  return std::lcm(grid, std::max(job.audio_dp, 1u));
}

uint32_t MicroBatchOf(const SyntheticJob& job) {
  return job.samples_per_group * GetGrid(job);
}

uint32_t MicroBatchesOf(const SyntheticJob& job, uint64_t step) {
  return job.dynamic ? 1 + step % kMaxMicroBatches : job.micro_batches;
}

v1::StepSchedule SyntheticSchedule(const SyntheticJob& job, uint64_t step) {
  const uint32_t samples = MicroBatchOf(job);
  v1::StepSchedule schedule;
  schedule.set_step(step);
  schedule.set_fingerprint(kSyntheticFingerprint);
  schedule.add_sources("docs");
  schedule.add_sources("chat");
  const uint64_t most = job.dynamic ? kMaxMicroBatches : job.micro_batches;
  for (uint32_t m = 0; m < MicroBatchesOf(job, step); ++m) {
    v1::MicroBatchSchedule* out = schedule.add_micro_batches();
    const uint64_t first = (step * most + m) * samples;
    for (uint32_t i = 0; i < samples; ++i) {
      out->add_position(first + i);
      AddSample(first + i, job, out);
      out->add_slot(m);
      out->add_place(job.delivery == v1::DELIVERY_OFF
                         ? i
                         : (Deal(i, samples) + 1 + m) % samples);
    }
    if (job.vision_dp > 0) {
      AddModule(job, v1::MODULE_VISION, job.vision_dp, out);
    }
    if (job.audio_dp > 0) {
      AddModule(job, v1::MODULE_AUDIO, job.audio_dp, out);
    }
    if (job.language_dp > 0) {
      AddModule(job, v1::MODULE_LANGUAGE, job.language_dp, out);
    }
  }
  return schedule;
}

v1::Job SyntheticJobMessage(const SyntheticJob& job) {
  v1::Job message;
  const auto add = [&](v1::Module module, uint32_t dp) {
    if (dp == 0) return;
    v1::Job::ModuleSize* size = message.add_modules();
    size->set_module(module);
    size->set_dp(dp);
    size->set_align(job.align);
    size->set_tp(job.tp);
    size->set_pp(job.pp);
    size->set_cp(job.cp);
    if (job.delivery != v1::DELIVERY_HYBRID) return;
    for (uint32_t rank = 0; rank < dp; ++rank) {
      size->add_server_of_rank(2 * rank / dp);
    }
  };
  add(v1::MODULE_VISION, job.vision_dp);
  add(v1::MODULE_AUDIO, job.audio_dp);
  add(v1::MODULE_LANGUAGE, job.language_dp);
  if (job.audio_dp > 0) {
    message.mutable_clip_shape()->set_width(job.clip_width);
    message.mutable_clip_shape()->set_dummy_rows(2);
  }
  message.set_micro_batch(MicroBatchOf(job));
  message.set_global_batch(job.micro_batches * MicroBatchOf(job));
  message.set_delivery(job.delivery);
  message.set_padded(job.padded);
  message.set_colocated(!job.apart);
  if (job.split) message.set_placement(v1::Balance::PLACEMENT_SPLIT);
  message.set_row_length(job.row_length);
  v1::Model* model = message.mutable_model();
  model->set_patch(4);
  model->set_merge(2);
  model->set_temporal_patch(TemporalPatchOf(job));
  for (int c = 0; c < 3; ++c) {
    model->add_mean(0.5);
    model->add_std(0.25);
  }
  model->mutable_token_ids()->set_pad(7);
  model->set_position_axes(3);
  if (job.videos) model->mutable_video();
  if (HasCrops(job)) {
    model->set_image_form(job.form);
    model->mutable_image_family()->set_rule(
        job.frames_are_crops ? v1::ImageFamily::RULE_TILE_GRID
                             : v1::ImageFamily::RULE_PINPOINTS);
    v1::Job::CropShape* shape = message.mutable_crop_shape();
    if (job.form == v1::Model::IMAGE_FORM_TILES) shape->set_margin(1);
    // At least as large as all frames: 8 patches and the margin.
    if (job.form == v1::Model::IMAGE_FORM_TILES && job.videos) {
      shape->set_tile(36);
    }
    if (job.form == v1::Model::IMAGE_FORM_PADDED) shape->set_max_patches(48);
    shape->set_dummy_grid_h(1);
    shape->set_dummy_grid_w(3);
  }
  return message;
}

}  // namespace ballast
