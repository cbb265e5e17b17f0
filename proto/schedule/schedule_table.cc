#include "proto/schedule/schedule_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {

namespace {

constexpr uint32_t kMaxGridSide = 65535;

absl::Status CheckLength(absl::string_view column, uint64_t found,
                         uint64_t wanted) {
  if (found == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("schedule: column ", column,
                                                 " has ", found,
                                                 " entries, wanted ", wanted));
}

// Checks that every entry of `column` is in [least, limit).
template <typename Column>
absl::Status CheckRange(absl::string_view name, const Column& column,
                        uint64_t least, uint64_t limit) {
  for (int i = 0; i < column.size(); ++i) {
    if (column.Get(i) >= least && column.Get(i) < limit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", name, " of entry ", i, " is ", column.Get(i),
                     ", wanted ", least, " to ", limit, " exclusive"));
  }
  return absl::OkStatus();
}

// Packs that several ranks share do not overlap. Preconditions: pack_ranks has
// its length, and owners are ranks.
absl::Status CheckPackRanks(const v1::ModuleSchedule& module) {
  const uint32_t dp = module.load_after_size();
  std::vector<uint32_t> ranks(dp);  // by owner; 0: none
  for (int i = 0; i < module.owner_size(); ++i) {
    const uint32_t owner = module.owner(i);
    const uint32_t shared = module.pack_ranks(i);
    const uint32_t others = ranks[owner] == 0 ? shared : ranks[owner];
    if (!std::has_single_bit(shared) || owner % shared != 0 ||
        shared > dp - owner || shared != others) {
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule: ", ModuleName(module.module()), ".pack_ranks of entry ", i,
          " is ", shared, " from rank ", owner,
          " on; wanted a power of two of which the rank is a multiple, within ",
          dp, " ranks, and for all samples of the rank the same",
          shared != others ? absl::StrCat(", ", others) : ""));
    }
    ranks[owner] = shared;
  }
  for (uint32_t r = 0, end = 0; r < dp; ++r) {
    if (ranks[r] == 0) continue;
    if (r < end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule: ", ModuleName(module.module()), ".pack_ranks: rank ", r,
          " has its own pack and shares one that ends at rank ", end,
          " exclusive; wanted one pack a rank"));
    }
    end = r + ranks[r];
  }
  return absl::OkStatus();
}

absl::Status CheckModule(const v1::ModuleSchedule& module, uint64_t samples) {
  const absl::string_view name = ModuleName(module.module());
  const std::string reader = absl::StrCat(name, ".reader");
  const std::string owner = absl::StrCat(name, ".owner");
  const uint64_t dp = module.load_after_size();
  BALLAST_RETURN_IF_ERROR(
      CheckLength(absl::StrCat(name, ".cost"), module.cost_size(), samples));
  BALLAST_RETURN_IF_ERROR(CheckLength(reader, module.reader_size(), samples));
  BALLAST_RETURN_IF_ERROR(CheckLength(owner, module.owner_size(), samples));
  BALLAST_RETURN_IF_ERROR(CheckLength(absl::StrCat(name, ".load_before"),
                                      module.load_before_size(), dp));
  BALLAST_RETURN_IF_ERROR(CheckRange(reader, module.reader(), 0, dp));
  BALLAST_RETURN_IF_ERROR(CheckRange(owner, module.owner(), 0, dp));
  if (!module.pack_ranks().empty()) {
    BALLAST_RETURN_IF_ERROR(CheckLength(absl::StrCat(name, ".pack_ranks"),
                                        module.pack_ranks_size(), samples));
    BALLAST_RETURN_IF_ERROR(CheckPackRanks(module));
  }
  return CheckRange(absl::StrCat(name, ".dummy_rank"), module.dummy_rank(), 0,
                    dp);
}

// Precondition: every slot is a micro-batch of the step.
absl::Status CheckPlaces(const v1::StepSchedule& schedule) {
  std::vector<uint32_t> samples(schedule.micro_batches_size());
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    for (const uint32_t slot : micro_batch.slot()) ++samples[slot];
  }
  std::vector<std::vector<bool>> taken;
  for (const uint32_t count : samples) taken.emplace_back(count);
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    for (int i = 0; i < micro_batch.slot_size(); ++i) {
      const uint32_t slot = micro_batch.slot(i);
      const uint32_t place = micro_batch.place(i);
      if (place >= samples[slot] || taken[slot][place]) {
        return absl::InvalidArgumentError(
            absl::StrCat("schedule: slot ", slot, " of ", samples[slot],
                         " samples holds place ", place,
                         place < samples[slot] ? " twice" : ""));
      }
      taken[slot][place] = true;
    }
  }
  return absl::OkStatus();
}

// A video's entries agree with each other and with its frames, which are of one
// size and are sent as pixels. Precondition: the columns have their lengths.
absl::Status CheckVideos(const v1::MicroBatchSchedule& micro_batch) {
  uint32_t crop = 0;
  for (int i = 0; i < micro_batch.grid_t_size(); ++i) {
    const uint32_t t = micro_batch.grid_t(i);
    const float seconds = micro_batch.seconds_per_patch(i);
    const uint32_t crops = GetCrops(micro_batch, i);
    const auto fault = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("schedule: video at entry ", i, " of column grid_t, ", t,
                       " temporal patches of ", seconds, " s and ", crops,
                       " frames: ", what));
    };
    if (t == 0 ? seconds != 0 : !(seconds >= 0 && std::isfinite(seconds))) {
      return fault("wanted seconds of 0 or more for a video, 0 for an image");
    }
    if (t != 0 && seconds == 0 && t != crops) {
      return fault(
          "wanted as many temporal patches as frames, since without seconds "
          "frames are crops");
    }
    if (t > crops) return fault("wanted at least a frame a temporal patch");
    const uint32_t first = crop;
    for (crop += crops; t != 0 && crop - first > 1; --crop) {
      if (micro_batch.grid_h(crop - 1) != micro_batch.grid_h(first) ||
          micro_batch.grid_w(crop - 1) != micro_batch.grid_w(first) ||
          EncodedBytes(micro_batch, crop - 1) != 0) {
        return fault("wanted frames of one size that travel as pixels");
      }
    }
    crop = first + crops;
  }
  return absl::OkStatus();
}

// Precondition: first_tokens has its length.
absl::Status CheckPairs(const v1::MicroBatchSchedule& micro_batch) {
  for (int i = 0; i < micro_batch.first_tokens_size(); ++i) {
    const uint32_t first = micro_batch.first_tokens(i);
    if (first == 0 || first < micro_batch.tokens(i)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule: first_tokens of entry ", i, " is ", first,
        ", wanted fewer than its ", micro_batch.tokens(i), " tokens"));
  }
  return absl::OkStatus();
}

// Precondition: clip_rows has its length.
absl::Status CheckClips(const v1::MicroBatchSchedule& micro_batch) {
  BALLAST_RETURN_IF_ERROR(CheckRange("clip_rows", micro_batch.clip_rows(), 1,
                                     uint64_t{kMaxClipRows} + 1));
  for (int i = 0; i < micro_batch.clip_frames_size(); ++i) {
    if (micro_batch.clip_frames(i) <= micro_batch.clip_rows(i)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: clip ", i, " has ", micro_batch.clip_frames(i),
                     " frames and ", micro_batch.clip_rows(i),
                     " rows; wanted at least as "
                     "many rows"));
  }
  return absl::OkStatus();
}

// An image that passes through encoded is one crop.
absl::Status CheckEncodedCrops(const v1::MicroBatchSchedule& micro_batch) {
  int crop = 0;
  for (int i = 0; i < micro_batch.crops_size(); ++i) {
    const int end = crop + static_cast<int>(micro_batch.crops(i));
    for (; crop < end; ++crop) {
      if (micro_batch.encoded_bytes(crop) == 0 || micro_batch.crops(i) == 1) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule: column encoded_bytes: entry ", crop, " is of image ", i,
          " with ", micro_batch.crops(i), " crops; wanted 0, or one crop"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckColumns(const v1::StepSchedule& schedule,
                          const v1::MicroBatchSchedule& micro_batch) {
  const uint64_t samples = micro_batch.tokens_size();
  BALLAST_RETURN_IF_ERROR(
      CheckLength("source", micro_batch.source_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("ordinal", micro_batch.ordinal_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("images", micro_batch.images_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("label_tokens", micro_batch.label_tokens_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("position", micro_batch.position_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("slot", micro_batch.slot_size(), samples));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("place", micro_batch.place_size(), samples));
  if (!micro_batch.first_tokens().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("first_tokens", micro_batch.first_tokens_size(), samples));
    BALLAST_RETURN_IF_ERROR(CheckPairs(micro_batch));
  }
  uint64_t images = 0;
  for (const uint32_t count : micro_batch.images()) images += count;
  uint64_t crops = images;
  if (!micro_batch.crops().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("crops", micro_batch.crops_size(), images));
    BALLAST_RETURN_IF_ERROR(
        CheckRange("crops", micro_batch.crops(), 1, uint64_t{1} << 32));
    crops = 0;
    for (const uint32_t count : micro_batch.crops()) crops += count;
  }
  if (!micro_batch.image_height().empty() ||
      !micro_batch.image_width().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("image_height", micro_batch.image_height_size(), images));
    BALLAST_RETURN_IF_ERROR(
        CheckLength("image_width", micro_batch.image_width_size(), images));
  }
  BALLAST_RETURN_IF_ERROR(
      CheckLength("grid_h", micro_batch.grid_h_size(), crops));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("grid_w", micro_batch.grid_w_size(), crops));
  if (!micro_batch.encoded_bytes().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("encoded_bytes", micro_batch.encoded_bytes_size(), crops));
  }
  if (!micro_batch.encoded_bytes().empty() && !micro_batch.crops().empty()) {
    BALLAST_RETURN_IF_ERROR(CheckEncodedCrops(micro_batch));
  }
  BALLAST_RETURN_IF_ERROR(CheckRange("encoded_bytes",
                                     micro_batch.encoded_bytes(), 0,
                                     uint64_t{kMaxEncodedBytes} + 1));
  BALLAST_RETURN_IF_ERROR(
      CheckRange("grid_h", micro_batch.grid_h(), 1, kMaxGridSide + 1));
  BALLAST_RETURN_IF_ERROR(
      CheckRange("grid_w", micro_batch.grid_w(), 1, kMaxGridSide + 1));
  BALLAST_RETURN_IF_ERROR(
      CheckRange("source", micro_batch.source(), 0, schedule.sources_size()));
  BALLAST_RETURN_IF_ERROR(
      CheckRange("slot", micro_batch.slot(), 0, schedule.micro_batches_size()));
  if (!micro_batch.grid_t().empty() ||
      !micro_batch.seconds_per_patch().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("grid_t", micro_batch.grid_t_size(), images));
    BALLAST_RETURN_IF_ERROR(CheckLength(
        "seconds_per_patch", micro_batch.seconds_per_patch_size(), images));
    BALLAST_RETURN_IF_ERROR(CheckVideos(micro_batch));
  }
  uint64_t clips = 0;
  for (const uint32_t count : micro_batch.clips()) clips += count;
  if (!micro_batch.clips().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("clips", micro_batch.clips_size(), samples));
  }
  BALLAST_RETURN_IF_ERROR(
      CheckLength("clip_rows", micro_batch.clip_rows_size(), clips));
  BALLAST_RETURN_IF_ERROR(
      CheckLength("clip_frames", micro_batch.clip_frames_size(), clips));
  if (!micro_batch.clip_tokens().empty()) {
    BALLAST_RETURN_IF_ERROR(
        CheckLength("clip_tokens", micro_batch.clip_tokens_size(), clips));
  }
  BALLAST_RETURN_IF_ERROR(CheckClips(micro_batch));
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    BALLAST_RETURN_IF_ERROR(CheckModule(module, samples));
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const v1::StepSchedule& schedule) {
  for (int m = 0; m < schedule.micro_batches_size(); ++m) {
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckColumns(schedule, schedule.micro_batches(m)),
                 absl::StrCat("step ", schedule.step(), " micro-batch ", m)));
  }
  return Annotate(CheckPlaces(schedule),
                  absl::StrCat("step ", schedule.step()));
}

FirstEntries GetFirstEntries(const v1::MicroBatchSchedule& micro_batch) {
  const int samples = micro_batch.images_size();
  FirstEntries first;
  first.clip.assign(samples + 1, 0);
  for (int i = 0; i < micro_batch.clips_size(); ++i) {
    first.clip[i + 1] = first.clip[i] + micro_batch.clips(i);
  }
  first.image.assign(samples + 1, 0);
  for (int i = 0; i < samples; ++i) {
    first.image[i + 1] = first.image[i] + micro_batch.images(i);
  }
  if (micro_batch.crops().empty()) {
    first.crop = first.image;
    return first;
  }
  first.crop.assign(samples + 1, 0);
  for (int i = 0; i < samples; ++i) {
    first.crop[i + 1] = first.crop[i];
    for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
      first.crop[i + 1] += micro_batch.crops(k);
    }
  }
  return first;
}

// The sum of a column of clips for each sample.
static std::vector<uint64_t> SumOfClips(
    const v1::MicroBatchSchedule& micro_batch,
    const google::protobuf::RepeatedField<uint32_t>& column) {
  const FirstEntries first = GetFirstEntries(micro_batch);
  std::vector<uint64_t> sums(micro_batch.images_size(), 0);
  for (size_t i = 0; i < sums.size() && !column.empty(); ++i) {
    for (uint32_t k = first.clip[i]; k < first.clip[i + 1]; ++k) {
      sums[i] += column.Get(static_cast<int>(k));
    }
  }
  return sums;
}

std::vector<uint64_t> SampleFrames(const v1::MicroBatchSchedule& micro_batch) {
  return SumOfClips(micro_batch, micro_batch.clip_frames());
}

std::vector<uint64_t> SampleClipTokens(
    const v1::MicroBatchSchedule& micro_batch) {
  return SumOfClips(micro_batch, micro_batch.clip_tokens());
}

std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch) {
  const FirstEntries first = GetFirstEntries(micro_batch);
  std::vector<uint64_t> patches(micro_batch.images_size(), 0);
  for (uint32_t i = 0; i < patches.size(); ++i) {
    ForEachSegment(micro_batch, first, i,
                   [&](uint64_t segment, uint32_t count) {
                     patches[i] += segment * count;
                   });
  }
  return patches;
}

std::vector<uint32_t> SampleVideos(const v1::MicroBatchSchedule& micro_batch) {
  std::vector<uint32_t> videos(micro_batch.images_size(), 0);
  if (micro_batch.grid_t().empty()) return videos;
  const FirstEntries first = GetFirstEntries(micro_batch);
  for (size_t i = 0; i < videos.size(); ++i) {
    for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
      videos[i] += GridT(micro_batch, k) != 0 ? 1 : 0;
    }
  }
  return videos;
}

v1::Totals SumColumns(const v1::MicroBatchSchedule& micro_batch) {
  const auto sum = [](const auto& column) {
    return std::accumulate(column.begin(), column.end(), uint64_t{0});
  };
  v1::Totals totals;
  totals.set_tokens(sum(micro_batch.tokens()));
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    const uint64_t first = FirstTokens(micro_batch, i);
    const uint64_t rest = micro_batch.tokens(i) - first;
    totals.set_tokens_squared(totals.tokens_squared() + first * first +
                              rest * rest);
  }
  totals.set_label_tokens(sum(micro_batch.label_tokens()));
  totals.set_patches(sum(SamplePatches(micro_batch)));
  const uint64_t videos = sum(SampleVideos(micro_batch));
  totals.set_images(sum(micro_batch.images()) - videos);
  totals.set_videos(videos);
  totals.set_clips(sum(micro_batch.clips()));
  totals.set_frames(sum(micro_batch.clip_frames()));
  return totals;
}

void AddTotals(const v1::Totals& more, v1::Totals* totals) {
  totals->set_tokens(totals->tokens() + more.tokens());
  totals->set_tokens_squared(totals->tokens_squared() + more.tokens_squared());
  totals->set_label_tokens(totals->label_tokens() + more.label_tokens());
  totals->set_patches(totals->patches() + more.patches());
  totals->set_images(totals->images() + more.images());
  totals->set_videos(totals->videos() + more.videos());
  totals->set_clips(totals->clips() + more.clips());
  totals->set_frames(totals->frames() + more.frames());
  if (!more.has_embeddings_moved()) return;
  const v1::EmbeddingsMoved& moved = more.embeddings_moved();
  v1::EmbeddingsMoved& sum = *totals->mutable_embeddings_moved();
  sum.set_tokens_within_servers(sum.tokens_within_servers() +
                                moved.tokens_within_servers());
  sum.set_tokens_between_servers(sum.tokens_between_servers() +
                                 moved.tokens_between_servers());
}

namespace {

using Loads = google::protobuf::RepeatedField<double>;

std::string Range(const Loads& loads) {
  if (loads.empty()) return "-";
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  return absl::StrFormat("%.0f..%.0f", *least, *most);
}

// "1.000" if every rank has the same load.
std::string LargestOverMean(const Loads& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum == 0) return "-";
  const double most = *std::max_element(loads.begin(), loads.end());
  return absl::StrFormat("%.3f", most * loads.size() / sum);
}

}  // namespace

std::string ScheduleToTable(const v1::StepSchedule& schedule) {
  Table table({{"micro-batch"},
               {"module", Table::kLeft},
               {"samples"},
               {"moved"},
               {"load before"},
               {"max/mean"},
               {"load after"},
               {"max/mean"}});
  for (int m = 0; m < schedule.micro_batches_size(); ++m) {
    for (const v1::ModuleSchedule& module :
         schedule.micro_batches(m).modules()) {
      int moved = 0;
      for (int i = 0; i < module.owner_size(); ++i) {
        moved += module.owner(i) != module.reader(i);
      }
      table.AddRow(
          {absl::StrCat(m), std::string(ModuleName(module.module())),
           absl::StrCat(module.owner_size()), absl::StrCat(moved),
           Range(module.load_before()), LargestOverMean(module.load_before()),
           Range(module.load_after()), LargestOverMean(module.load_after())});
    }
  }
  const v1::Totals& totals = schedule.totals();
  std::string embeddings;
  if (totals.has_embeddings_moved()) {
    const v1::EmbeddingsMoved& moved = totals.embeddings_moved();
    embeddings =
        absl::StrCat("embeddings moved: ", moved.tokens_within_servers(),
                     " tokens within servers, ", moved.tokens_between_servers(),
                     " between servers\n");
  }
  return absl::StrCat(
      SplitWord(schedule.split()), "step ", schedule.step(), "  fingerprint ",
      schedule.fingerprint(), "\n", table.ToString(),
      "totals: ", totals.tokens(), " tokens, ", totals.label_tokens(),
      " label tokens, ", totals.patches(), " patches, ", totals.images(),
      " images",
      totals.videos() == 0 ? ""
                           : absl::StrCat(", ", totals.videos(), " videos"),
      totals.clips() == 0 ? ""
                          : absl::StrCat(", ", totals.clips(), " clips of ",
                                         totals.frames(), " frames"),
      "\n", embeddings);
}

namespace {

using Json = nlohmann::ordered_json;

Json TotalsJson(const v1::Totals& totals) {
  Json json = {{"tokens", totals.tokens()},
               {"tokens_squared", totals.tokens_squared()},
               {"label_tokens", totals.label_tokens()},
               {"patches", totals.patches()},
               {"images", totals.images()}};
  if (totals.videos() != 0) json["videos"] = totals.videos();
  if (totals.clips() != 0) {
    json["clips"] = totals.clips();
    json["frames"] = totals.frames();
  }
  if (totals.has_embeddings_moved()) {
    const v1::EmbeddingsMoved& moved = totals.embeddings_moved();
    json["embeddings_moved"] = {
        {"tokens_within_servers", moved.tokens_within_servers()},
        {"tokens_between_servers", moved.tokens_between_servers()}};
  }
  return json;
}

// One entry a module: {"vision": f(vision), "language": f(language)}.
template <typename F>
Json PerModule(const v1::MicroBatchSchedule& micro_batch, F f) {
  Json entries = Json::object();
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    entries[std::string(ModuleName(module.module()))] = f(module);
  }
  return entries;
}

Json MicroBatchJson(const v1::StepSchedule& schedule,
                    const v1::MicroBatchSchedule& micro_batch) {
  Json samples = Json::array();
  const std::vector<uint64_t> patches = SamplePatches(micro_batch);
  const std::vector<uint32_t> videos = SampleVideos(micro_batch);
  const std::vector<uint64_t> frames = SampleFrames(micro_batch);
  const std::vector<uint64_t> clip_tokens = SampleClipTokens(micro_batch);
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    samples.push_back(
        {{"position", micro_batch.position(i)},
         {"sample", absl::StrCat(schedule.sources(micro_batch.source(i)), ":",
                                 micro_batch.ordinal(i))},
         {"source", micro_batch.source(i)},
         {"images", micro_batch.images(i) - videos[i]},
         {"patches", patches[i]},
         {"tokens", micro_batch.tokens(i)},
         {"label_tokens", micro_batch.label_tokens(i)},
         {"cost",
          PerModule(micro_batch, [i](const auto& m) { return m.cost(i); })},
         {"reader",
          PerModule(micro_batch, [i](const auto& m) { return m.reader(i); })},
         {"owner",
          PerModule(micro_batch, [i](const auto& m) { return m.owner(i); })},
         {"slot", micro_batch.slot(i)},
         {"place", micro_batch.place(i)}});
    for (const v1::ModuleSchedule& module : micro_batch.modules()) {
      if (module.pack_ranks().empty()) continue;
      samples.back()["pack_ranks"][std::string(ModuleName(module.module()))] =
          module.pack_ranks(i);
    }
    if (const uint32_t first = FirstTokens(micro_batch, i); first != 0) {
      samples.back()["first_tokens"] = first;
    }
    if (videos[i] != 0) samples.back()["videos"] = videos[i];
    if (frames[i] != 0) {
      samples.back()["clips"] = micro_batch.clips(i);
      samples.back()["frames"] = frames[i];
      samples.back()["audio_tokens"] = clip_tokens[i];
    }
  }
  Json json = {
      {"samples", std::move(samples)},
      {"load", PerModule(micro_batch, [](const auto& m) -> Json {
         return {{"before", m.load_before()}, {"after", m.load_after()}};
       })}};
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    if (module.dummy_rank().empty()) continue;
    json["dummies"][std::string(ModuleName(module.module()))] =
        module.dummy_rank();
  }
  return json;
}

}  // namespace

std::string ScheduleToJson(const v1::StepSchedule& schedule) {
  Json micro_batches = Json::array();
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    micro_batches.push_back(MicroBatchJson(schedule, micro_batch));
  }
  Json json = {{"step", schedule.step()},
               {"fingerprint", schedule.fingerprint()},
               {"micro_batches", std::move(micro_batches)},
               {"totals", TotalsJson(schedule.totals())}};
  if (schedule.split() != v1::SPLIT_TRAIN) {
    json["split"] = std::string(SplitName(schedule.split()));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ballast
