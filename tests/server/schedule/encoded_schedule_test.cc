// Schedules of images that travel encoded.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using google::protobuf::util::MessageDifferencer;

// Length of the file of an image; 0: not for engines.
uint32_t FileBytes(uint64_t ordinal, uint32_t image) {
  return (ordinal + image) % 3 == 0 ? 0 : 1000 * ordinal + image + 1;
}

std::vector<FakeSourceIndex::Sample> Samples(ImageCheckResult check) {
  std::vector<FakeSourceIndex::Sample> samples = FormulaSamples(97);
  for (uint64_t i = 0; i < samples.size(); ++i) {
    for (uint32_t k = 0; k < samples[i].images.size(); ++k) {
      const uint32_t bytes = FileBytes(i, k);
      samples[i].marks.push_back(
          bytes == 0 ? ImageMark::Refused(EngineRefusal::kProcess)
                     : ImageMark::Marked(bytes, check));
    }
  }
  return samples;
}

v1::StepSchedule ScheduleOf(const v1::Config& config,
                            const FakeSourceIndex& index, uint64_t step) {
  return *(*Scheduler::Create(config, {&index}))->Schedule(step);
}

TEST(EncodedScheduleTest, ListsTheLengthOfEachFile) {
  const FakeSourceIndex index(Samples(ImageCheckResult::kClean));
  const v1::Config config = JobConfig(4, 2, 32, 16);
  uint64_t encoded = 0;
  for (uint64_t step = 0; step < 4; ++step) {
    const v1::StepSchedule schedule = ScheduleOf(config, index, step);
    ASSERT_TRUE(CheckColumns(schedule).ok()) << CheckColumns(schedule);
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      const std::vector<uint32_t> first = GetFirstEntries(columns).crop;
      for (int i = 0; i < columns.ordinal_size(); ++i) {
        for (uint32_t k = 0; k < columns.images(i); ++k) {
          EXPECT_EQ(EncodedBytes(columns, first[i] + k),
                    FileBytes(columns.ordinal(i), k));
          encoded += FileBytes(columns.ordinal(i), k) > 0;
        }
      }
    }
  }
  EXPECT_GT(encoded, 0u);
}

// model.device_share: of the images that may travel encoded, those that do are
// the same in every epoch and on every server.
TEST(EncodedScheduleTest, AShareOfTheFilesTravels) {
  const FakeSourceIndex index(Samples(ImageCheckResult::kClean));
  // (ordinal, image) -> whether it travels, of those with a file.
  using Travels = std::map<std::pair<uint64_t, uint32_t>, bool>;
  const auto travels_of = [&](double share, uint32_t dp) {
    v1::Config config = JobConfig(dp, dp, 32, 16);
    config.mutable_model()->set_device_share(share);
    Travels travels;
    for (uint64_t step = 0; step < 9; ++step) {  // three epochs
      const v1::StepSchedule schedule = ScheduleOf(config, index, step);
      EXPECT_TRUE(CheckColumns(schedule).ok()) << CheckColumns(schedule);
      for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
        const std::vector<uint32_t> first = GetFirstEntries(columns).crop;
        for (int i = 0; i < columns.ordinal_size(); ++i) {
          for (uint32_t k = 0; k < columns.images(i); ++k) {
            const uint32_t bytes = EncodedBytes(columns, first[i] + k);
            const uint32_t file = FileBytes(columns.ordinal(i), k);
            if (file == 0) {
              EXPECT_EQ(bytes, 0u);
              continue;
            }
            EXPECT_TRUE(bytes == 0 || bytes == file) << bytes;
            const auto [before, is_new] =
                travels.insert({{columns.ordinal(i), k}, bytes != 0});
            EXPECT_EQ(before->second, bytes != 0) << columns.ordinal(i);
          }
        }
      }
    }
    return travels;
  };
  const auto count = [](const Travels& travels) {
    return std::count_if(travels.begin(), travels.end(),
                         [](const auto& each) { return each.second; });
  };
  const Travels all = travels_of(1, 4);
  EXPECT_GT(all.size(), 60u);
  EXPECT_EQ(count(all), static_cast<int64_t>(all.size()));
  EXPECT_EQ(count(travels_of(0, 4)), 0);
  const Travels half = travels_of(0.5, 4);
  EXPECT_GT(count(half), 0);
  EXPECT_LT(count(half), static_cast<int64_t>(half.size()));
  // However the job is laid out; and a larger share adds images to a smaller.
  EXPECT_EQ(travels_of(0.5, 2), half);
  for (const auto& [image, travels] : travels_of(0.8, 4)) {
    if (half.at(image)) {
      EXPECT_TRUE(travels);
    }
  }
}

// Ranks resize along the width first. Pillow 13 begins with the height where it
// shrinks by more than twice the pixels by which the width does.
TEST(EncodedScheduleTest, WhatPillow13BeginsWithTheHeightTravelsAsPixels) {
  const std::vector<FakeSourceIndex::Sample> samples =
      Samples(ImageCheckResult::kClean);
  const FakeSourceIndex index(samples);
  v1::Config config = JobConfig(4, 2, 32, 16);
  config.mutable_model()->set_resample(v1::Model::RESAMPLE_PILLOW13);
  const int patch = static_cast<int>(config.model().patch());
  int encoded = 0;
  int pixels = 0;
  for (uint64_t step = 0; step < 4; ++step) {
    const v1::StepSchedule schedule = ScheduleOf(config, index, step);
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      const std::vector<uint32_t> first = GetFirstEntries(columns).crop;
      for (int i = 0; i < columns.ordinal_size(); ++i) {
        const uint64_t ordinal = columns.ordinal(i);
        for (uint32_t k = 0; k < columns.images(i); ++k) {
          const ImageSize& image = samples[ordinal].images[k];
          const uint32_t crop = first[i] + k;
          const int fewer_rows = static_cast<int>(image.height) -
                                 static_cast<int>(columns.grid_h(crop)) * patch;
          const int fewer_columns =
              static_cast<int>(image.width) -
              static_cast<int>(columns.grid_w(crop)) * patch;
          const bool height_first =
              fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
          EXPECT_EQ(EncodedBytes(columns, crop),
                    height_first ? 0 : FileBytes(ordinal, k))
              << image.width << "x" << image.height;
          if (FileBytes(ordinal, k) == 0) continue;
          (height_first ? pixels : encoded) += 1;
        }
      }
    }
  }
  EXPECT_GT(encoded, 20);
  EXPECT_GT(pixels, 20);
}

// Both values of model.decode must make the same batches.
TEST(EncodedScheduleTest, ChangesNothingElse) {
  FakeSourceIndex index(Samples(ImageCheckResult::kClean));
  for (const bool packs : {false, true}) {
    v1::Config config = JobConfig(4, 2, 32, 16);
    if (packs) {
      config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
      config.mutable_packing()->set_max_tokens_per_rank(2048);
      config.mutable_packing()->set_virtual_pipeline_group(1);
    }
    for (uint64_t step = 0; step < 4; ++step) {
      index.set_rule(EncodedRule::kNone);
      const v1::StepSchedule host = ScheduleOf(config, index, step);
      index.set_rule(EncodedRule::kChecked);
      v1::StepSchedule device = ScheduleOf(config, index, step);
      for (v1::MicroBatchSchedule& columns : *device.mutable_micro_batches()) {
        columns.clear_encoded_bytes();
      }
      EXPECT_TRUE(MessageDifferencer::Equals(host, device));
    }
  }
}

TEST(EncodedScheduleTest, WithoutEncodedImagesThereIsNoColumn) {
  const FakeSourceIndex index(Samples(ImageCheckResult::kUnsound));
  const v1::StepSchedule schedule =
      ScheduleOf(JobConfig(2, 2, 32, 16), index, 0);
  for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
    EXPECT_GT(columns.grid_h_size(), 0);
    EXPECT_TRUE(columns.encoded_bytes().empty());
  }
}

}  // namespace
}  // namespace ballast
