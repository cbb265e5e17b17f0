#include "server/schedule/device_share.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Config ConfigOf(double share, const std::vector<const char*>& sources) {
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

uint64_t CountOf(const std::vector<bool>& images) {
  uint64_t count = 0;
  for (const bool is_in : images) count += is_in;
  return count;
}

// Five standard deviations of the binomial distribution.
void ExpectShare(const std::vector<bool>& images, double share) {
  const auto n = static_cast<double>(images.size());
  EXPECT_NEAR(static_cast<double>(CountOf(images)), n * share,
              5 * std::sqrt(n * share * (1 - share)));
}

TEST(DeviceShareTest, IsRespected) {
  for (const double share : {0.01, 0.25, 0.5, 0.8, 0.99}) {
    const DeviceShare device(ConfigOf(share, {"docs"}));
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
  EXPECT_EQ(CountOf(Images(DeviceShare(ConfigOf(0, {"a"})), 0, 100'000)), 0u);
  EXPECT_EQ(CountOf(Images(DeviceShare(ConfigOf(1, {"a"})), 0, 100'000)),
            100'000u);
  v1::Config config = ConfigOf(1, {"a"});
  config.mutable_model()->clear_device_share();
  EXPECT_EQ(CountOf(Images(DeviceShare(config), 0, 100'000)), 100'000u);
  // The hash is below 1 - 2^-53 all but once in 2^53.
  const double most = std::nextafter(1.0, 0.0);
  EXPECT_EQ(CountOf(Images(DeviceShare(ConfigOf(most, {"a"})), 0, 100'000)),
            100'000u);
}

// Servers need not list the sources of other splits in the same places.
TEST(DeviceShareTest, TheNameOfASourceCountsAndNotItsPlace) {
  const DeviceShare one(ConfigOf(0.5, {"docs"}));
  const DeviceShare other(ConfigOf(0.5, {"held_out", "docs"}));
  const std::vector<bool> docs = Images(one, 0, 1000, 3);
  EXPECT_EQ(Images(other, 1, 1000, 3), docs);
  EXPECT_NE(Images(other, 0, 1000, 3), docs);
}

TEST(DeviceShareTest, LimitsTheFilesOfASample) {
  const DeviceShare half(ConfigOf(0.5, {"docs"}));
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
  DeviceShare(ConfigOf(1, {"docs"})).Limit(0, 5, &bytes);
  EXPECT_THAT(bytes, ElementsAre(10, 0, 30));
  DeviceShare(ConfigOf(0, {"docs"})).Limit(0, 5, &bytes);
  EXPECT_THAT(bytes, IsEmpty());
  half.Limit(0, 5, &bytes);
  EXPECT_THAT(bytes, IsEmpty());
}

}  // namespace
}  // namespace ballast
