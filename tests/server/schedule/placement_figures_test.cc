#include "server/schedule/placement_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Config GetConfig(double share, const std::vector<const char*>& sources) {
  v1::Config config;
  config.mutable_model()->set_device_share(share);
  for (const char* name : sources) config.add_sources()->set_name(name);
  return config;
}

// The images of the first samples of a source that are in the share.
std::vector<bool> Images(const DeviceShare& share, uint32_t source,
                         uint64_t samples, uint32_t crops = 1) {
  std::vector<bool> images;
  for (uint64_t ordinal = 0; ordinal < samples; ++ordinal) {
    for (uint32_t crop = 0; crop < crops; ++crop) {
      images.push_back(share.Has(source, ordinal, crop));
    }
  }
  return images;
}

uint64_t GetCount(const std::vector<bool>& images) {
  uint64_t count = 0;
  for (const bool is_in : images) count += is_in;
  return count;
}

// Five standard deviations of the binomial distribution.
void ExpectShare(const std::vector<bool>& images, double share) {
  const auto n = static_cast<double>(images.size());
  EXPECT_NEAR(static_cast<double>(GetCount(images)), n * share,
              5 * std::sqrt(n * share * (1 - share)));
}

TEST(DeviceShareTest, IsRespected) {
  for (const double share : {0.01, 0.25, 0.5, 0.8, 0.99}) {
    const DeviceShare device(GetConfig(share, {"docs"}));
    ExpectShare(Images(device, 0, 100'000), share);
    ExpectShare(Images(device, 0, 1'000, 50), share);
    // In every part of a source, and among every other sample.
    std::vector<bool> later, even;
    for (uint64_t i = 0; i < 20'000; ++i) {
      later.push_back(device.Has(0, (uint64_t{1} << 40) + i, 3));
      even.push_back(device.Has(0, 2 * i, 0));
    }
    ExpectShare(later, share);
    ExpectShare(even, share);
  }
}

TEST(DeviceShareTest, NoneAndAllAreExact) {
  EXPECT_EQ(GetCount(Images(DeviceShare(GetConfig(0, {"a"})), 0, 100'000)), 0u);
  EXPECT_EQ(GetCount(Images(DeviceShare(GetConfig(1, {"a"})), 0, 100'000)),
            100'000u);
  v1::Config config = GetConfig(1, {"a"});
  config.mutable_model()->clear_device_share();
  EXPECT_EQ(GetCount(Images(DeviceShare(config), 0, 100'000)), 100'000u);
  // The hash is below 1 - 2^-53 all but once in 2^53.
  const double most = std::nextafter(1.0, 0.0);
  EXPECT_EQ(GetCount(Images(DeviceShare(GetConfig(most, {"a"})), 0, 100'000)),
            100'000u);
}

// Servers need not list the sources of other splits in the same places.
TEST(DeviceShareTest, TheNameOfASourceCountsAndNotItsPlace) {
  const DeviceShare one(GetConfig(0.5, {"docs"}));
  const DeviceShare other(GetConfig(0.5, {"held_out", "docs"}));
  const std::vector<bool> docs = Images(one, 0, 1000, 3);
  EXPECT_EQ(Images(other, 1, 1000, 3), docs);
  EXPECT_NE(Images(other, 0, 1000, 3), docs);
}

TEST(DeviceShareTest, LimitsTheFilesOfASample) {
  const DeviceShare half(GetConfig(0.5, {"docs"}));
  bool both = false;
  for (uint64_t ordinal = 0; ordinal < 100; ++ordinal) {
    std::vector<uint32_t> bytes = {10, 0, 30};
    half.Limit(0, ordinal, &bytes);
    const bool first = half.Has(0, ordinal, 0);
    const bool third = half.Has(0, ordinal, 2);
    if (!first && !third) {
      EXPECT_THAT(bytes, IsEmpty());
    } else {
      EXPECT_THAT(bytes, ElementsAre(first ? 10 : 0, 0, third ? 30 : 0));
    }
    both |= first && !third;
  }
  EXPECT_TRUE(both);
  std::vector<uint32_t> bytes = {10, 0, 30};
  DeviceShare(GetConfig(1, {"docs"})).Limit(0, 5, &bytes);
  EXPECT_THAT(bytes, ElementsAre(10, 0, 30));
  DeviceShare(GetConfig(0, {"docs"})).Limit(0, 5, &bytes);
  EXPECT_THAT(bytes, IsEmpty());
  half.Limit(0, 5, &bytes);
  EXPECT_THAT(bytes, IsEmpty());
}

std::vector<uint32_t> Lightest(const LightRanks& light, size_t most = 3) {
  const LightRanks::List list = light.Lightest(most);
  return {list.ranks.begin(), list.ranks.begin() + list.count};
}

TEST(LightRanksTest, OfEqualLoadsTheLowerRankComesFirst) {
  LightRanks light(8);
  EXPECT_EQ(Lightest(light), std::vector<uint32_t>());
  light.Set(6, 10);
  light.Set(2, 10);
  EXPECT_EQ(Lightest(light), (std::vector<uint32_t>{2, 6}));
  light.Set(7, 9);
  light.Set(0, 11);
  EXPECT_EQ(Lightest(light), (std::vector<uint32_t>{7, 2, 6}));
  light.Remove(3);
  light.Remove(2);
  EXPECT_EQ(Lightest(light), (std::vector<uint32_t>{7, 6, 0}));
}

class LightRanksSeedTest : public ::testing::TestWithParam<uint32_t> {};

// Against a sorted set, over random changes.
TEST_P(LightRanksSeedTest, IsASortedSet) {
  std::mt19937 random(GetParam());
  constexpr uint32_t kRanks = 40;
  LightRanks light(kRanks);
  std::vector<int64_t> loads(kRanks, -1);  // -1: not in it
  for (int change = 0; change < 2000; ++change) {
    const uint32_t rank = random() % kRanks;
    if (random() % 3 == 0) {
      loads[rank] = -1;
      light.Remove(rank);
    } else {
      loads[rank] = random() % 50;
      light.Set(rank, loads[rank]);
    }
    std::set<std::pair<int64_t, uint32_t>> sorted;
    for (uint32_t r = 0; r < kRanks; ++r) {
      if (loads[r] >= 0) sorted.emplace(loads[r], r);
    }
    std::vector<uint32_t> wanted;
    for (const auto& [load, r] : sorted) {
      if (wanted.size() < LightRanks::kMaxListed) wanted.push_back(r);
    }
    ASSERT_EQ(Lightest(light, LightRanks::kMaxListed), wanted)
        << "change " << change;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LightRanksSeedTest, ::testing::Range(0u, 8u));

void AddModule(v1::Module module, const std::vector<double>& loads,
               v1::MicroBatchSchedule* out) {
  v1::ModuleSchedule& added = *out->add_modules();
  added.set_module(module);
  added.mutable_load_after()->Add(loads.begin(), loads.end());
}

TEST(PlacementFiguresTest, SumsMicroBatchesAndSteps) {
  v1::StepSchedule schedule;
  v1::MicroBatchSchedule& first = *schedule.add_micro_batches();
  AddModule(v1::MODULE_VISION, {4, 2}, &first);
  AddModule(v1::MODULE_LANGUAGE, {1, 5}, &first);
  v1::MicroBatchSchedule& second = *schedule.add_micro_batches();
  AddModule(v1::MODULE_VISION, {0, 0}, &second);
  AddModule(v1::MODULE_LANGUAGE, {3, 3}, &second);
  schedule.mutable_totals()->set_patches(40);
  auto& moved = *schedule.mutable_totals()->mutable_embeddings_moved();
  moved.set_tokens_within_servers(3);
  moved.set_tokens_between_servers(2);
  PlacementFigures figures;
  AddStep(schedule, 4, &figures);
  AddStep(schedule, 4, &figures);
  EXPECT_EQ(figures.steps, 2);
  EXPECT_EQ(figures.micro_batches, 4);
  // A step: (4+2+1+5)/2 + 3; max(4+1, 2+5) + 3; 4+5 + 3.
  EXPECT_DOUBLE_EQ(figures.mean_time, 2 * 9);
  EXPECT_DOUBLE_EQ(figures.time_together, 2 * 10);
  EXPECT_DOUBLE_EQ(figures.time_by_module, 2 * 12);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_VISION), 4.0 / 3);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_LANGUAGE), 8.0 / 6);
  EXPECT_EQ(figures.image_tokens, 20);
  EXPECT_EQ(figures.tokens_within_servers, 6);
  EXPECT_EQ(figures.tokens_between_servers, 4);
}

TEST(PlacementFiguresTest, ModulesOfOtherSizesMeetAtTheirHeaviestRanks) {
  v1::StepSchedule schedule;
  v1::MicroBatchSchedule& only = *schedule.add_micro_batches();
  AddModule(v1::MODULE_VISION, {4, 2}, &only);
  AddModule(v1::MODULE_LANGUAGE, {6, 1, 1, 1}, &only);
  PlacementFigures figures;
  AddStep(schedule, 4, &figures);
  EXPECT_DOUBLE_EQ(figures.time_together, 10);
  EXPECT_DOUBLE_EQ(figures.mean_time, 3 + 2.25);
}

TEST(PlacementFiguresTest, OneModuleHasNoLoadOfTheOther) {
  v1::StepSchedule schedule;
  AddModule(v1::MODULE_VISION, {1, 3}, schedule.add_micro_batches());
  PlacementFigures figures;
  AddStep(schedule, 4, &figures);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_VISION), 1.5);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_LANGUAGE), 0);
  EXPECT_DOUBLE_EQ(figures.time_by_module, 3);
}

}  // namespace

}  // namespace ballast
