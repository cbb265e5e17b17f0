#include "trainer_shim/cuda/staging_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {
namespace {

// A rank's micro-batch of a synthetic job, planned.
struct Planned {
  JobShape shape;
  ExchangePlan exchange;
  BatchLayout layout;
  BatchInfo info;
  StagingPlan plan;
  std::vector<uint8_t> upload;

  // Offset and bytes of a tensor, among the packed ones or the lists.
  std::pair<uint64_t, uint64_t> Place(const char* name) const {
    const BatchTensor* tensor = FindTensor(info, name);
    if (tensor == nullptr) return {};
    const bool is_packed = tensor->row->memory == Memory::kPacked;
    return {(is_packed ? 0 : plan.upload.lists) + tensor->offset,
            tensor->bytes()};
  }

  template <typename T>
  T Read(uint64_t offset, uint64_t index) const {
    T value;
    std::memcpy(&value, upload.data() + offset + index * sizeof(T), sizeof(T));
    return value;
  }
};

Planned Plan(v1::Module module, uint32_t rank, PixelType type,
             bool dummy = false, const SyntheticJob& job = {},
             bool encoded = false, bool pairs = false) {
  v1::StepSchedule schedule = SyntheticSchedule(job, 3);
  for (v1::MicroBatchSchedule& columns : *schedule.mutable_micro_batches()) {
    for (int i = 0; pairs && i < columns.tokens_size(); ++i) {
      columns.add_first_tokens(i % 2 == 0 ? 1 : 0);
    }
  }
  for (v1::MicroBatchSchedule& columns : *schedule.mutable_micro_batches()) {
    // Every other image, with files of another length each.
    for (int k = 0; encoded && k < columns.grid_h_size(); ++k) {
      columns.add_encoded_bytes(k % 2 == 0 ? 300 + 7 * k : 0);
    }
  }
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  Planned planned;
  planned.shape = *GetShape(SyntheticJobMessage(job), role);
  planned.exchange = *PlanExchange(schedule, 1, role, planned.shape.delivery,
                                   planned.shape.block);
  v1::MicroBatchSchedule* columns = schedule.mutable_micro_batches(1);
  for (v1::ModuleSchedule& each : *columns->mutable_modules()) {
    if (dummy && each.module() == module) each.add_dummy_rank(rank);
  }
  planned.layout =
      *LayOutBatch(planned.exchange, *columns, role, planned.shape);
  const StepInfo step = GetStepInfo(schedule, planned.shape.padding);
  FillBatchInfo(step, 1, role, planned.shape, type, planned.exchange,
                planned.layout, /*has_block=*/true, &planned.info);
  planned.plan = PlanStaging(planned.exchange, planned.layout, planned.info);
  planned.upload.resize(planned.plan.upload.bytes);
  FillUpload(planned.plan, planned.exchange, planned.layout, planned.info,
             absl::MakeSpan(planned.upload));
  return planned;
}

// Expects of arrays (offset, length) that none overlaps another, all lie
// inside, and all begin at multiples of 256.
void ExpectApart(std::vector<std::pair<uint64_t, uint64_t>> arrays,
                 uint64_t limit) {
  std::sort(arrays.begin(), arrays.end());
  uint64_t end = 0;
  for (const auto& [offset, bytes] : arrays) {
    EXPECT_EQ(offset % 256, 0u);
    EXPECT_GE(offset, end);
    end = offset + bytes;
  }
  EXPECT_LE(end, limit);
}

TEST(StagingPlanTest, PartsOfTheLandingBufferDoNotOverlap) {
  const Planned p = Plan(v1::MODULE_VISION, 1, PixelType::kFloat32, true);
  const ImageRecord& dummy = p.layout.images.back();
  ExpectApart({{0, p.exchange.block.bytes()},
               {p.plan.landing.received, p.exchange.receive_bytes},
               {p.plan.landing.grey, 3u * dummy.height * dummy.width}},
              p.plan.landing.bytes);
}

TEST(StagingPlanTest, EncodedImagesHavePixelsOfTheirOwn) {
  for (const uint32_t rank : {0, 1}) {
    const Planned p =
        Plan(v1::MODULE_VISION, rank, PixelType::kFloat32, true, {}, true);
    const ImageRecord& dummy = p.layout.images.back();
    std::vector<std::pair<uint64_t, uint64_t>> parts = {
        {0, p.exchange.block.bytes()},
        {p.plan.landing.received, p.exchange.receive_bytes},
        {p.plan.landing.grey, 3u * dummy.height * dummy.width}};
    bool received = false;
    size_t encoded = 0;
    for (size_t i = 0; i < p.exchange.images.size(); ++i) {
      const ImageRecord& image = p.exchange.images[i];
      const auto source = p.Read<PatchifyImage>(p.plan.upload.images, i);
      if (image.encoded_bytes == 0) {
        EXPECT_LT(source.pixel_offset, p.plan.landing.decoded);
        continue;
      }
      ASSERT_LT(encoded, p.plan.encoded.size());
      const EncodedSource& from = p.plan.encoded[encoded++];
      const OwnedSample& owned = p.exchange.owned[from.sample];
      EXPECT_EQ(from.image, i);
      EXPECT_EQ(from.file, owned.payload + image.data);
      EXPECT_EQ(source.pixel_offset, from.pixels);
      received |= owned.received;
      parts.push_back({from.pixels, 3u * image.height * image.width});
    }
    EXPECT_GT(encoded, 0u);
    EXPECT_EQ(encoded, p.plan.encoded.size());
    EXPECT_EQ(p.plan.receives_encoded, received);
    ExpectApart(parts, p.plan.landing.bytes);
  }
}

// Temporal patches have rows and frames of their own, apart from the images'.
TEST(StagingPlanTest, VideosHaveTablesOfTheirOwn) {
  SyntheticJob job;
  job.videos = true;
  job.samples_per_group = 9;
  uint64_t received = 0;
  for (const uint32_t rank : {0, 1}) {
    const Planned p =
        Plan(v1::MODULE_VISION, rank, PixelType::kBfloat16, true, job);
    const UploadLayout& at = p.plan.upload;
    const VideoLayout& videos = p.layout.videos;
    ASSERT_GT(p.plan.frames, 0u);
    ASSERT_EQ(p.plan.frames, videos.patches.size());
    ExpectApart({{at.images, p.plan.images * sizeof(PatchifyImage)},
                 {at.frames, p.plan.frames * sizeof(PatchifyImage)},
                 p.Place("video_grid_thw"),
                 p.Place("second_per_grid_ts"),
                 p.Place("video_cu_seqlens")},
                at.bytes);
    EXPECT_EQ(p.Place("video_grid_thw").second, videos.num_videos() * 24);
    EXPECT_EQ(p.Place("second_per_grid_ts").second, videos.num_videos() * 4);
    EXPECT_EQ(p.Place("video_cu_seqlens").second, (p.plan.frames + 1) * 4);
    const uint64_t row = p.layout.crops.shape.row() * sizeof(uint16_t);
    ExpectApart({p.Place("pixel_values"), p.Place("pixel_values_videos")},
                p.plan.output.bytes);
    EXPECT_EQ(p.Place("pixel_values").second, p.plan.rows * row);
    EXPECT_EQ(p.Place("pixel_values_videos").second, p.plan.video_rows * row);
    // Frames in order, two to a patch but for a last odd one.
    size_t patch = 0;
    uint64_t next_row = 0;
    for (const OwnedSample& owned : p.exchange.owned) {
      received += owned.received;
      uint32_t k = 0;
      while (k < owned.expected.num_images) {
        const ImageRecord& frame = p.exchange.images[owned.first_image + k];
        if (!IsFrame(frame)) {
          ++k;
          continue;
        }
        const bool second =
            k + 1 < owned.expected.num_images &&
            p.exchange.images[owned.first_image + k + 1].image == frame.image;
        const auto source = p.Read<PatchifyImage>(at.frames, patch++);
        EXPECT_EQ(source.pixel_offset,
                  p.plan.landing.Of(owned, owned.payload) + frame.data);
        EXPECT_EQ(source.first_row, next_row);
        EXPECT_EQ(source.frames, second ? 2u : 1u);
        if (second) {
          const ImageRecord& after =
              p.exchange.images[owned.first_image + k + 1];
          EXPECT_EQ(source.frame_stride, after.data - frame.data);
        }
        EXPECT_EQ(source.height, frame.height);
        next_row += uint64_t{frame.grid_h} * frame.grid_w;
        k += second ? 2 : 1;
      }
    }
    EXPECT_EQ(patch, p.plan.frames);
    EXPECT_EQ(next_row, p.plan.video_rows);
    EXPECT_EQ(p.plan.images, p.layout.images.size());
    EXPECT_TRUE(p.layout.dummy_image);
    EXPECT_EQ(p.Read<PatchifyImage>(at.images, p.plan.images - 1).pixel_offset,
              p.plan.landing.grey);
  }
  EXPECT_GT(received, 0u);
}

// The features of every clip go to its rows, in as few runs as lie together.
TEST(StagingPlanTest, FeaturesOfClipsGoToTheirRows) {
  for (const uint32_t width : {10u, 128u}) {
    SyntheticJob job;
    job.audio_dp = 2;
    job.clip_width = width;
    job.samples_per_group = 9;
    const uint64_t row = width * sizeof(float);
    uint64_t received = 0;
    for (const uint32_t rank : {0, 1}) {
      const bool dummy = rank == 1;
      const Planned p =
          Plan(v1::MODULE_AUDIO, rank, PixelType::kFloat32, dummy, job);
      // Where each byte of input_features comes from.
      const auto [offset, bytes] = p.Place("input_features");
      std::vector<uint64_t> from(bytes, 0);
      for (const FeatureRun& run : p.plan.features) {
        EXPECT_GT(run.bytes, 0u);
        ASSERT_LE(run.to + run.bytes, bytes);
        for (uint64_t i = 0; i < run.bytes; ++i) {
          EXPECT_EQ(from[run.to + i], 0u);
          from[run.to + i] = run.from + i;
        }
      }
      EXPECT_EQ(p.layout.dummy_image, dummy);
      const std::vector<int32_t>& places = p.layout.clips.cu_rows;
      size_t clip = 0;
      for (const OwnedSample& owned : p.exchange.owned) {
        received += owned.received;
        for (uint32_t k = 0; k < owned.expected.num_images; ++k, ++clip) {
          const uint64_t data = (owned.received ? p.plan.landing.received : 0) +
                                owned.payload +
                                p.exchange.images[owned.first_image + k].data;
          for (uint64_t i = row * places[clip]; i < row * places[clip + 1];
               ++i) {
            ASSERT_EQ(from[i], data + i - row * places[clip]);
          }
        }
      }
      ASSERT_GT(clip, 1u);
      ASSERT_EQ(places.size(), clip + 1 + dummy);
      EXPECT_EQ(p.plan.silence.offset, row * places[clip]);
      EXPECT_EQ(p.plan.silence.offset + p.plan.silence.bytes, bytes);
      EXPECT_EQ(p.plan.silence.bytes, dummy ? 2 * row : 0);
      // Rows of 512 bytes have no padding between samples.
      if (width == 128) {
        EXPECT_LT(p.plan.features.size(), clip);
      }
      // Nothing lands beside what arrives; the lists are uploaded.
      EXPECT_EQ(p.plan.landing.bytes, p.plan.landing.grey);
      EXPECT_TRUE(p.plan.encoded.empty());
      EXPECT_EQ(p.plan.images, 0u);
      ExpectApart({p.Place("audio_feature_lengths"), p.Place("audio_cu_rows")},
                  p.plan.upload.bytes);
      ExpectApart({p.Place("input_features"),
                   {p.plan.output.placeholders, p.plan.samples},
                   {p.plan.output.header, sizeof(ExchangeHeader)}},
                  p.plan.output.bytes);
    }
    EXPECT_GT(received, 0u);
  }
}

TEST(StagingPlanTest, ArraysOfTheUploadDoNotOverlap) {
  const Planned p = Plan(v1::MODULE_VISION, 0, PixelType::kFloat32);
  const UploadLayout& at = p.plan.upload;
  const uint64_t n = p.plan.samples;
  const uint64_t images = p.plan.images;
  ExpectApart({{at.header, sizeof(ExchangeHeader)},
               {at.records, n * sizeof(RecordCheck)},
               {at.texts, p.plan.sequences * sizeof(TextSource)},
               {at.images, images * sizeof(PatchifyImage)},
               p.Place("image_grid_thw"),
               p.Place("vision_cu_seqlens")},
              at.bytes);
  EXPECT_EQ(p.Place("image_grid_thw").second, images * 3 * sizeof(int64_t));
  EXPECT_EQ(p.Place("vision_cu_seqlens").second,
            (images + 1) * sizeof(int32_t));
}

TEST(StagingPlanTest, TensorsOfTheBatchDoNotOverlap) {
  const Planned text = Plan(v1::MODULE_LANGUAGE, 0, PixelType::kFloat32);
  const OutputLayout& at = text.plan.output;
  const uint64_t t = text.plan.tokens;
  EXPECT_EQ(t, static_cast<uint64_t>(text.layout.text.padded_tokens()));
  EXPECT_EQ(text.Place("input_ids").second, 8 * t);
  EXPECT_EQ(text.Place("labels").second, 8 * t);
  EXPECT_EQ(text.Place("loss_mask").second, 4 * t);
  EXPECT_EQ(text.Place("position_ids").second, 8 * 3 * t);
  ExpectApart({text.Place("input_ids"),
               text.Place("labels"),
               text.Place("loss_mask"),
               text.Place("position_ids"),
               {at.placeholders, text.plan.samples},
               {at.header, sizeof(ExchangeHeader)}},
              at.bytes);

  const Planned pixels = Plan(v1::MODULE_VISION, 0, PixelType::kBfloat16);
  const uint64_t values = pixels.plan.rows * pixels.shape.crops.rows.row();
  EXPECT_EQ(pixels.Place("pixel_values").second, 2 * values);
  ExpectApart({pixels.Place("pixel_values"),
               {pixels.plan.output.placeholders, pixels.plan.samples},
               {pixels.plan.output.header, sizeof(ExchangeHeader)}},
              pixels.plan.output.bytes);
  EXPECT_EQ(
      Plan(v1::MODULE_VISION, 0, PixelType::kFloat32).plan.output.placeholders,
      (4 * values + 255) / 256 * 256);
}

TEST(StagingPlanTest, RowsOfPaddedBatchesHaveAMask) {
  SyntheticJob job;
  job.padded = true;
  job.row_length = 64;
  Planned p = Plan(v1::MODULE_LANGUAGE, 0, PixelType::kFloat32, false, job);
  const OutputLayout& at = p.plan.output;
  const uint64_t t = 64 * p.plan.samples;
  EXPECT_EQ(p.plan.tokens, t);
  EXPECT_EQ(p.Place("attention_mask").second, t);
  ExpectApart({p.Place("input_ids"),
               p.Place("labels"),
               p.Place("loss_mask"),
               p.Place("position_ids"),
               p.Place("attention_mask"),
               {at.placeholders, p.plan.samples},
               {at.header, sizeof(ExchangeHeader)}},
              at.bytes);
}

// A later stage of vision has samples, but memory for nothing else.
TEST(StagingPlanTest, ARankThatReceivesNothingLaysOutNothing) {
  const Planned p = Plan(v1::MODULE_VISION, 0, PixelType::kFloat32);
  const BatchLayout nothing;
  const BatchInfo empty;
  const StagingPlan plan = PlanStaging(p.exchange, nothing, empty);
  EXPECT_EQ(plan.samples, p.plan.samples);
  EXPECT_EQ(plan.images, 0u);
  EXPECT_EQ(plan.output.placeholders, 0u);
  EXPECT_LE(plan.output.bytes, 512u);
  std::vector<uint8_t> upload(plan.upload.bytes);
  FillUpload(plan, p.exchange, nothing, empty, absl::MakeSpan(upload));
}

// A context rank has memory for its part, a stage for what it receives.
TEST(StagingPlanTest, TensorsHaveTheSizesOfTheRanksPlace) {
  Planned text = Plan(v1::MODULE_LANGUAGE, 0, PixelType::kFloat32);
  const uint64_t t = text.plan.tokens;
  text.info.context = {2, 1};
  text.info.fields.input_ids = false;
  LayOutTensors(&text.info);
  text.plan = PlanStaging(text.exchange, text.layout, text.info);
  EXPECT_EQ(text.plan.tokens, t / 2);
  EXPECT_EQ(FindTensor(text.info, "input_ids"), nullptr);
  EXPECT_EQ(text.Place("labels").second, 8 * t / 2);
  EXPECT_EQ(text.Place("loss_mask").second, 4 * t / 2);
  EXPECT_EQ(text.Place("position_ids").second, 8 * 3 * t / 2);
  ExpectApart({text.Place("labels"),
               text.Place("loss_mask"),
               text.Place("position_ids"),
               {text.plan.output.placeholders, text.plan.samples}},
              text.plan.output.bytes);
}

TEST(StagingPlanTest, SourcesAndChecksPointAtTheLandedSamples) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const Planned p = Plan(module, 1, PixelType::kFloat32);
    bool received = false;
    for (size_t i = 0; i < p.exchange.owned.size(); ++i) {
      const OwnedSample& owned = p.exchange.owned[i];
      const uint64_t base = owned.received ? p.plan.landing.received : 0;
      received |= owned.received;
      const auto check = p.Read<RecordCheck>(p.plan.upload.records, i);
      EXPECT_EQ(check.record, base + owned.record);
      EXPECT_EQ(check.expected.position, owned.expected.position);
      if (module == v1::MODULE_VISION) continue;
      const auto text = p.Read<TextSource>(p.plan.upload.texts, i);
      EXPECT_EQ(text.payload, base + owned.payload);
      EXPECT_EQ(text.tokens, owned.expected.tokens);
    }
    EXPECT_TRUE(received);
  }
}

TEST(StagingPlanTest, SequencesOfPairsAreTexts) {
  const Planned p = Plan(v1::MODULE_LANGUAGE, 1, PixelType::kFloat32, false, {},
                         false, /*pairs=*/true);
  size_t number = 0;
  for (const OwnedSample& owned : p.exchange.owned) {
    uint64_t payload = p.plan.landing.Of(owned, owned.payload);
    for (const uint32_t tokens :
         {owned.expected.first_tokens,
          owned.expected.tokens - owned.expected.first_tokens}) {
      if (tokens == 0) continue;
      const auto text = p.Read<TextSource>(p.plan.upload.texts, number);
      EXPECT_EQ(text.payload, payload);
      EXPECT_EQ(text.tokens, tokens);
      const int32_t length =
          p.info.text.cu_seqlens[number + 1] - p.info.text.cu_seqlens[number];
      EXPECT_EQ(tokens, static_cast<uint32_t>(length));
      payload += LayOutLanguage(tokens, 3).bytes;
      ++number;
    }
  }
  EXPECT_GT(number, p.exchange.owned.size());
  EXPECT_EQ(number, p.plan.sequences);
  const auto [place, bytes] = p.Place("pair");
  EXPECT_EQ(bytes, number * sizeof(int32_t));
  EXPECT_EQ(p.Read<int32_t>(place, 0), p.info.pair[0]);
}

TEST(StagingPlanTest, ImagesFollowOneAnotherInRowsAndTheDummyIsLast) {
  const Planned p = Plan(v1::MODULE_VISION, 1, PixelType::kFloat32, true);
  ASSERT_EQ(p.plan.images, p.exchange.images.size() + 1);
  uint64_t row = 0;
  for (uint32_t i = 0; i < p.plan.images; ++i) {
    const auto image = p.Read<PatchifyImage>(p.plan.upload.images, i);
    EXPECT_EQ(image.first_row, row);
    row += uint64_t{image.grid_h} * image.grid_w;
    const uint64_t end =
        image.pixel_offset + uint64_t{3} * image.height * image.width;
    EXPECT_LE(end, p.plan.landing.bytes);
  }
  EXPECT_EQ(row, p.plan.rows);
  const auto last =
      p.Read<PatchifyImage>(p.plan.upload.images, p.plan.images - 1);
  EXPECT_EQ(last.pixel_offset, p.plan.landing.grey);
}

TEST(StagingPlanTest, SplitPlacementUploadsTheOrderOfEmbeddings) {
  SyntheticJob job;
  job.split = true;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const Planned p = Plan(module, 1, PixelType::kFloat32, false, job);
    const std::vector<int64_t>& order =
        FindPlan(p.layout.embeddings, v1::MODULE_VISION).order;
    ASSERT_FALSE(order.empty());
    const auto [offset, bytes] = p.Place("embedding_order");
    EXPECT_EQ(bytes, 8 * order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(p.Read<int64_t>(offset, i), order[i]);
    }
  }
  EXPECT_TRUE(Plan(v1::MODULE_VISION, 1, PixelType::kFloat32)
                  .layout.embeddings.empty());
}

// Headers of ranks at one micro-batch of one schedule differ only in the rank's
// bits.
TEST(StagingPlanTest, HeadersHoldRankStepAndMicroBatch) {
  const ExchangeHeader a = GetHeader(
      Plan(v1::MODULE_VISION, 0, PixelType::kFloat32).exchange.block.header);
  const ExchangeHeader b = GetHeader(
      Plan(v1::MODULE_VISION, 1, PixelType::kFloat32).exchange.block.header);
  EXPECT_EQ(a.place, (uint64_t{3} << 24) + 1);
  EXPECT_EQ(b.place, a.place);
  EXPECT_EQ(a.fingerprint & kHeaderRankMask, 0u);
  EXPECT_EQ(b.fingerprint & kHeaderRankMask, 1u);
  EXPECT_EQ(a.fingerprint >> kHeaderRankBits, 0x00112233445u);
  EXPECT_EQ(b.fingerprint >> kHeaderRankBits, 0x00112233445u);
}

}  // namespace
}  // namespace ballast
