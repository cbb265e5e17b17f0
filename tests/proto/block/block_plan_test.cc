#include "proto/block/block_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/aligned_buffer.h"
#include "proto/block/block_view.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr BlockGeometry kGeometry = {.patch = 14, .position_axes = 3};

v1::StepSchedule MakeSchedule(uint32_t vision_dp, uint32_t language_dp) {
  static const FakeSourceIndex* index = new FakeSourceIndex(FormulaSamples(61));
  auto scheduler =
      Scheduler::Create(JobConfig(vision_dp, language_dp, 48, 24), {index});
  return *(*scheduler)->Schedule(2);
}

// Every sample is in exactly one rank's block, for readers and for owners.
TEST(BlockPlanTest, RanksTogetherHoldEverySampleOnce) {
  const v1::StepSchedule schedule = MakeSchedule(2, 3);
  for (const v1::Delivery mode :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID}) {
    for (const auto& [module, dp] : std::map<v1::Module, uint32_t>{
             {v1::MODULE_VISION, 2}, {v1::MODULE_LANGUAGE, 3}}) {
      DeliveryRule delivery(mode);
      if (mode == v1::DELIVERY_HYBRID) {
        // The last rank has its own server.
        delivery.server_of_rank.resize(dp, 0);
        delivery.server_of_rank.back() = 1;
      }
      std::multiset<uint64_t> positions;
      for (uint32_t rank = 0; rank < dp; ++rank) {
        const auto plan =
            PlanBlock(schedule, 1, RoleOf(module, rank), delivery, kGeometry);
        ASSERT_TRUE(plan.ok()) << plan.status();
        for (const auto& sample : plan->samples) {
          positions.insert(sample.record.position);
        }
      }
      std::multiset<uint64_t> all;
      for (uint64_t i = 0; i < 24; ++i) all.insert(2 * 48 + 24 + i);
      EXPECT_EQ(positions, all);
    }
  }
}

// Behaves like `direct` within a server, like `exchange` between servers.
TEST(BlockPlanTest, HybridExchangesOnlyBetweenServers) {
  const v1::StepSchedule schedule = MakeSchedule(4, 2);
  DeliveryRule hybrid(v1::DELIVERY_HYBRID);
  hybrid.server_of_rank = {0, 1, 0, 1};
  const v1::ModuleSchedule& vision =
      *FindModule(schedule.micro_batches(0), v1::MODULE_VISION);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    std::set<uint32_t> expected;
    for (int i = 0; i < vision.owner_size(); ++i) {
      const bool crosses = vision.reader(i) % 2 != vision.owner(i) % 2;
      if ((crosses ? vision.reader(i) : vision.owner(i)) == rank) {
        expected.insert(i);
      }
    }
    const auto plan = PlanBlock(schedule, 0, RoleOf(v1::MODULE_VISION, rank),
                                hybrid, kGeometry);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::set<uint32_t> found;
    for (const PlannedSample& sample : plan->samples) {
      found.insert(sample.index);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(BlockPlanTest, OrdersSamplesByDestination) {
  const v1::StepSchedule schedule = MakeSchedule(4, 2);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto plan = PlanBlock(schedule, 0, RoleOf(v1::MODULE_VISION, rank),
                                v1::DELIVERY_EXCHANGE, kGeometry);
    ASSERT_TRUE(plan.ok());
    for (size_t i = 1; i < plan->samples.size(); ++i) {
      const auto& a = plan->samples[i - 1];
      const auto& b = plan->samples[i];
      const auto& place = schedule.micro_batches(0).place();
      EXPECT_TRUE(a.owner < b.owner ||
                  (a.owner == b.owner && place[a.index] < place[b.index]));
    }
  }
}

// A payload of two sequences is the payloads of both.
TEST(BlockPlanTest, HoldsTheSequencesOfPairs) {
  v1::StepSchedule schedule = MakeSchedule(2, 2);
  const auto plan = [&](v1::Module module) {
    return *PlanBlock(schedule, 0, RoleOf(module, 1), v1::DELIVERY_EXCHANGE,
                      kGeometry);
  };
  const BlockPlan before = plan(v1::MODULE_LANGUAGE);
  EXPECT_EQ(before.header.version, kBlockVersion);
  v1::MicroBatchSchedule& columns = *schedule.mutable_micro_batches(0);
  columns.mutable_first_tokens()->Resize(columns.tokens_size(), 0);
  for (int i = 0; i < columns.tokens_size(); i += 2) {
    columns.set_first_tokens(i, 1 + i % (columns.tokens(i) - 1));
  }
  const BlockPlan pairs = plan(v1::MODULE_LANGUAGE);
  EXPECT_EQ(pairs.header.version, kBlockVersionWithPairs);
  EXPECT_EQ(plan(v1::MODULE_VISION).header.version, kBlockVersionWithPairs);
  ASSERT_EQ(pairs.samples.size(), before.samples.size());
  const auto bytes = [](uint32_t tokens) {
    return LayOutLanguage(tokens, kGeometry.position_axes).bytes;
  };
  for (const PlannedSample& sample : pairs.samples) {
    const uint32_t tokens = sample.record.tokens;
    const uint32_t first = sample.record.first_tokens;
    EXPECT_EQ(first, columns.first_tokens(sample.index));
    EXPECT_EQ(first != 0, sample.index % 2 == 0);
    EXPECT_EQ(
        sample.record.payload_bytes,
        first == 0 ? bytes(tokens) : bytes(first) + bytes(tokens - first));
  }
}

// Positions as floats take the room of whole ones; a client that takes them for
// whole ones refuses the version. Fields and pairs may be there, too.
TEST(BlockPlanTest, FloatPositionsAreAVersion) {
  v1::StepSchedule schedule = MakeSchedule(2, 2);
  BlockGeometry geometry = kGeometry;
  const auto plan = [&](v1::Module module) {
    return *PlanBlock(schedule, 0, RoleOf(module, 1), v1::DELIVERY_EXCHANGE,
                      geometry);
  };
  const uint64_t bytes = plan(v1::MODULE_LANGUAGE).bytes();
  v1::Job job;
  job.set_float_positions(true);
  geometry.float_positions = GetGeometry(job).float_positions;
  EXPECT_EQ(plan(v1::MODULE_LANGUAGE).header.version, kBlockVersionWithFloats);
  EXPECT_EQ(plan(v1::MODULE_LANGUAGE).bytes(), bytes);
  EXPECT_EQ(plan(v1::MODULE_VISION).header.version, kBlockVersion);
  geometry.fields.per_sample = 1;
  v1::MicroBatchSchedule& columns = *schedule.mutable_micro_batches(0);
  columns.mutable_first_tokens()->Resize(columns.tokens_size(), 1);
  EXPECT_EQ(plan(v1::MODULE_LANGUAGE).header.version, kBlockVersionWithFloats);
  const BlockPlan all = plan(v1::MODULE_LANGUAGE);
  AlignedBuffer block = *AlignedBuffer::Create(all.bytes());
  WriteBlockTables(all, block.bytes());
  const auto parsed = BlockView::Parse(block.bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->Matches(all).ok());
}

// Offsets as in docs/block.md.
TEST(BlockPlanTest, OffsetsFollowTheFormula) {
  const v1::StepSchedule schedule = MakeSchedule(2, 2);
  for (const auto module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const auto plan = PlanBlock(schedule, 0, RoleOf(module, 1),
                                v1::DELIVERY_EXCHANGE, kGeometry);
    ASSERT_TRUE(plan.ok());
    const size_t samples = plan->samples.size(), images = plan->images.size();
    EXPECT_EQ(plan->header.micro_batches, 2u);
    EXPECT_EQ(plan->header.sample_table, 128u);
    EXPECT_EQ(plan->header.image_table, 128 + 64 * samples);
    EXPECT_EQ(plan->header.payload,
              AlignUp(128 + 64 * samples + 48 * images, 256));
    uint64_t offset = plan->header.payload;
    for (const auto& sample : plan->samples) {
      const SampleRecord& record = sample.record;
      EXPECT_EQ(record.payload, offset);
      uint64_t bytes = 0;
      if (module == v1::MODULE_VISION) {
        for (uint32_t k = 0; k < record.num_images; ++k) {
          const ImageRecord& image = plan->images[record.first_image + k];
          EXPECT_EQ(image.data, bytes);
          EXPECT_EQ(image.height, 14 * image.grid_h);
          bytes += AlignUp(3 * 14 * 14 * image.grid_h * image.grid_w, 256);
        }
      } else {
        EXPECT_EQ(record.num_images, 0u);
        // ids, labels and three axes of positions.
        bytes = AlignUp(2 * AlignUp(4 * record.tokens, 16) + 12 * record.tokens,
                        256);
      }
      EXPECT_EQ(record.payload_bytes, bytes);
      offset += bytes;
    }
    EXPECT_EQ(plan->bytes(), offset);
  }
}

TEST(BlockPlanTest, RefusesInvalidArguments) {
  v1::StepSchedule schedule = MakeSchedule(2, 2);
  const auto plan = [&](uint32_t micro_batch, v1::Module module, uint32_t rank,
                        const DeliveryRule& delivery) {
    return std::string(PlanBlock(schedule, micro_batch, RoleOf(module, rank),
                                 delivery, kGeometry)
                           .status()
                           .message());
  };
  EXPECT_THAT(plan(2, v1::MODULE_VISION, 0, v1::DELIVERY_EXCHANGE),
              HasSubstr("has 2 micro-batches; number 2"));
  EXPECT_THAT(plan(0, v1::MODULE_VISION, 2, v1::DELIVERY_EXCHANGE),
              HasSubstr("vision has 2 data-parallel ranks; rank 2"));
  EXPECT_THAT(plan(0, v1::MODULE_UNSPECIFIED, 0, v1::DELIVERY_EXCHANGE),
              HasSubstr("module unspecified is not configured"));
  DeliveryRule hybrid(v1::DELIVERY_HYBRID);
  hybrid.server_of_rank = {0, 0, 1};
  EXPECT_THAT(plan(0, v1::MODULE_VISION, 0, hybrid),
              HasSubstr("vision has 2 data-parallel ranks; the servers of 3"));
  schedule.set_fingerprint("abc");
  EXPECT_THAT(plan(0, v1::MODULE_VISION, 0, v1::DELIVERY_EXCHANGE),
              HasSubstr("\"abc\" is not 32 hexadecimal digits"));
}

using ::testing::ElementsAre;

constexpr BlockGeometry kPayloadBytesGeometry = {.patch = 14,
                                                 .position_axes = 3};

uint64_t RoundUp(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// docs/block.md: each image's pixels begin at a multiple of 256.
TEST(PayloadBytesTest, RoundsEachImageUp) {
  const std::vector<uint32_t> heights = {2, 4}, widths = {6, 10};
  EXPECT_EQ(PayloadBytes({9, heights, widths, {}}, Media::kImages,
                         kPayloadBytesGeometry),
            RoundUp(3 * 2 * 6 * 196) + RoundUp(3 * 4 * 10 * 196));
  EXPECT_EQ(
      PayloadBytes({9, {}, {}, {}}, Media::kImages, kPayloadBytesGeometry), 0u);
}

// docs/block.md: a file takes its length instead of the pixels', be it smaller
// or larger.
TEST(PayloadBytesTest, CountsTheFilesOfEncodedImages) {
  const std::vector<uint32_t> heights = {2, 4, 2}, widths = {6, 10, 2};
  const std::vector<uint32_t> encoded = {1000, 0, 5000};
  EXPECT_EQ(PayloadBytes({9, heights, widths, encoded}, Media::kImages,
                         kPayloadBytesGeometry),
            RoundUp(1000) + RoundUp(3 * 4 * 10 * 196) + RoundUp(5000));
  const uint64_t language = PayloadBytes({9, heights, widths, {}}, Media::kText,
                                         kPayloadBytesGeometry);
  EXPECT_EQ(PayloadBytes({9, heights, widths, encoded}, Media::kText,
                         kPayloadBytesGeometry),
            language);
}

// docs/block.md: the numbers of fields follow the positions, and a language
// block says that it has some.
TEST(PayloadBytesTest, HasRoomForFields) {
  const LanguagePayload plain = LayOutLanguage(9, 3);
  const LanguagePayload none = LayOutLanguage(9, 3, {});
  EXPECT_EQ(plain.bytes, RoundUp(48 + 48 + 9 * 12));
  EXPECT_EQ(none.bytes, plain.bytes);
  const LanguagePayload with = LayOutLanguage(9, 3, {2, 5});
  EXPECT_EQ(with.positions, plain.positions);
  EXPECT_EQ(with.values, 48u + 48u + 112u);
  EXPECT_EQ(with.rows, with.values + 32u);
  EXPECT_EQ(with.bytes, RoundUp(with.rows + 2 * 36));

  v1::Job job;
  for (const auto per :
       {v1::Source::Field::PER_SAMPLE, v1::Source::Field::PER_TOKEN,
        v1::Source::Field::PER_TURN}) {
    job.add_fields()->set_per(per);
  }
  const BlockGeometry geometry = GetGeometry(job);
  EXPECT_EQ(geometry.fields.per_sample, 1u);
  EXPECT_EQ(geometry.fields.per_token, 2u);
  FieldCounts counts;
  const std::vector<FieldPlace> places = PlaceFields(job.fields(), &counts);
  EXPECT_FALSE(places[0].per_token);
  EXPECT_TRUE(places[2].per_token);
  EXPECT_EQ(places[2].number, 1u);
}

// docs/block.md: a crop is grid * patch + margin pixels high and wide; its
// record names the image that it is of.
TEST(PayloadBytesTest, LaysOutTheCropsOfEachImage) {
  constexpr BlockGeometry kMargin = {
      .patch = 14, .position_axes = 1, .margin = 6};
  const std::vector<uint32_t> heights = {2, 4, 3}, widths = {6, 1, 2};
  const std::vector<uint32_t> crops = {2, 1};
  const std::vector<uint32_t> image_height = {100, 300}, image_width = {200, 7};
  const PayloadRow row = {9,     heights,      widths,     {},
                          crops, image_height, image_width};
  std::vector<ImageRecord> records;
  AppendCrops(row, kMargin, &records);
  ASSERT_EQ(records.size(), 3u);
  uint64_t offset = 0;
  for (size_t i = 0; i < 3; ++i) {
    const ImageRecord& record = records[i];
    EXPECT_EQ(record.data, offset);
    EXPECT_EQ(record.grid_t, 1u);
    EXPECT_EQ(record.grid_h, heights[i]);
    EXPECT_EQ(record.grid_w, widths[i]);
    EXPECT_EQ(record.height, heights[i] * 14 + 6);
    EXPECT_EQ(record.width, widths[i] * 14 + 6);
    EXPECT_EQ(record.image, i < 2 ? 0u : 1u);
    EXPECT_EQ(record.image_height, i < 2 ? 100u : 300u);
    EXPECT_EQ(record.image_width, i < 2 ? 200u : 7u);
    EXPECT_EQ(record.seconds_per_patch, 0);
    offset += RoundUp(3 * (heights[i] * 14 + 6) * (widths[i] * 14 + 6));
  }
  EXPECT_EQ(PayloadBytes(row, Media::kImages, kMargin), offset);
}

// docs/block.md: frames of a video are crops whose records have its temporal
// patches and their seconds.
TEST(PayloadBytesTest, LaysOutTheFramesOfAVideo) {
  v1::MicroBatchSchedule micro_batch;
  micro_batch.add_images(2);
  micro_batch.add_tokens(1);
  for (const uint32_t crops : {1, 3}) micro_batch.add_crops(crops);
  for (const uint32_t t : {0, 2}) micro_batch.add_grid_t(t);
  for (const float seconds : {0.0f, 0.75f}) {
    micro_batch.add_seconds_per_patch(seconds);
  }
  for (const uint32_t side : {1, 2, 2, 2}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  std::vector<ImageRecord> records;
  AppendCrops(GetRow(micro_batch, GetFirstEntries(micro_batch), 0),
              kPayloadBytesGeometry, &records);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_FALSE(IsFrame(records[0]));
  EXPECT_EQ(records[0].grid_t, 1u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(IsFrame(records[i]));
    EXPECT_EQ(records[i].grid_t, 2u);
    EXPECT_EQ(records[i].seconds_per_patch, 0.75f);
    EXPECT_EQ(records[i].image, 1u);
    EXPECT_EQ(records[i].data, RoundUp(588) + (i - 1) * RoundUp(4 * 588));
  }
}

// Of a video without seconds between its patches, frames are crops as an
// image's are.
TEST(PayloadBytesTest, FramesWithoutSecondsAreCrops) {
  v1::MicroBatchSchedule micro_batch;
  micro_batch.add_images(2);
  micro_batch.add_tokens(1);
  for (const uint32_t crops : {2, 3}) micro_batch.add_crops(crops);
  for (const uint32_t t : {0, 3}) micro_batch.add_grid_t(t);
  micro_batch.mutable_seconds_per_patch()->Resize(2, 0);
  for (int i = 0; i < 5; ++i) {
    micro_batch.add_grid_h(2);
    micro_batch.add_grid_w(2);
  }
  std::vector<ImageRecord> records;
  AppendCrops(GetRow(micro_batch, GetFirstEntries(micro_batch), 0),
              kPayloadBytesGeometry, &records);
  ASSERT_EQ(records.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(IsFrame(records[i]));
    EXPECT_EQ(records[i].grid_t, 1u);
    EXPECT_EQ(records[i].image, i < 2 ? 0u : 1u);
  }
}

// Ids, labels and positions are int32 arrays at multiples of 16.
TEST(PayloadBytesTest, CountsTheArraysOfALanguageSample) {
  const auto array = [](uint64_t entries) {
    return (4 * entries + 15) / 16 * 16;
  };
  for (const uint32_t tokens : {1u, 9u, 1000u}) {
    EXPECT_EQ(
        PayloadBytes({tokens, {}, {}, {}}, Media::kText, kPayloadBytesGeometry),
        RoundUp(2 * array(tokens) + 4 * uint64_t{3} * tokens));
  }
}

TEST(PayloadBytesTest, ReadsTheRowsOfAMicroBatch) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {1, 0, 2}) {
    micro_batch.add_images(images);
    micro_batch.add_tokens(1);
  }
  for (const uint32_t side : {1, 2, 3}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  EXPECT_THAT(
      PayloadBytes(micro_batch, Media::kImages, kPayloadBytesGeometry),
      ElementsAre(RoundUp(588), 0, RoundUp(4 * 588) + RoundUp(9 * 588)));
  for (const uint32_t bytes : {300, 0, 700})
    micro_batch.add_encoded_bytes(bytes);
  EXPECT_THAT(PayloadBytes(micro_batch, Media::kImages, kPayloadBytesGeometry),
              ElementsAre(RoundUp(300), 0, RoundUp(4 * 588) + RoundUp(700)));
}

TEST(PayloadBytesTest, ReadsTheCropsOfAMicroBatch) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {1, 0, 2}) {
    micro_batch.add_images(images);
    micro_batch.add_tokens(1);
  }
  for (const uint32_t crops : {2, 1, 1}) micro_batch.add_crops(crops);
  for (const uint32_t side : {1, 2, 3, 4}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  EXPECT_THAT(PayloadBytes(micro_batch, Media::kImages, kPayloadBytesGeometry),
              ElementsAre(RoundUp(588) + RoundUp(4 * 588), 0,
                          RoundUp(9 * 588) + RoundUp(16 * 588)));
  const PayloadRow last = GetRow(micro_batch, GetFirstEntries(micro_batch), 2);
  EXPECT_THAT(last.grid_h, ElementsAre(3, 4));
  EXPECT_THAT(last.crops, ElementsAre(1, 1));
  EXPECT_TRUE(last.image_height.empty());
}

}  // namespace

}  // namespace ballast
