#include "server/schedule/job_videos.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/model_profile.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Video = v1::Model::Video;

// A source with this many videos.
class Videos final : public SourceIndex {
 public:
  explicit Videos(uint64_t videos) : videos_(videos) {}
  uint64_t size() const override { return 1; }
  absl::StatusOr<IndexedSample> sample(uint64_t) const override {
    return IndexedSample();
  }
  uint64_t num_videos() const override { return videos_; }
  std::string digest() const override { return std::string(32, '0'); }

 private:
  const uint64_t videos_;
};

v1::Config ConfigOf(const std::string& profile) {
  v1::Config config;
  config.mutable_model()->set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(config.mutable_model()).ok());
  return config;
}

TEST(JobVideosTest, OneSourceOfAnySplitIsEnough) {
  const Videos none(0), some(3);
  EXPECT_FALSE(HaveVideos({}));
  EXPECT_FALSE(HaveVideos({&none, &none}));
  EXPECT_TRUE(HaveVideos({&none, &some}));
}

// A job without videos is the same, whatever its configuration says of them.
TEST(JobVideosTest, DataDecideWhetherAJobHasVideos) {
  const Videos none(0), some(1);
  for (const char* profile : {"qwen2_vl", "qwen3_5_vl", "internvl3",
                              "llava_onevision", "llava_video"}) {
    v1::Config config = ConfigOf(profile);
    config.mutable_model()->mutable_video()->set_max_frames(9);
    ASSERT_TRUE(ResolveVideos({&none}, &config).ok());
    EXPECT_FALSE(config.model().has_video()) << profile;
    ASSERT_TRUE(ResolveVideos({&none, &some}, &config).ok());
    EXPECT_EQ(config.model().video().sampling(), Video::SAMPLING_QWEN_VL_UTILS);
    config.mutable_model()->mutable_video()->set_sampling(
        Video::SAMPLING_TRANSFORMERS);
    ASSERT_TRUE(ResolveVideos({&some}, &config).ok());
    EXPECT_EQ(config.model().video().sampling(), Video::SAMPLING_TRANSFORMERS);
  }
}

TEST(JobVideosTest, NamesTheSettingThatDoesNotCarryVideos) {
  const Videos none(0), some(1);
  const auto fault = [&](v1::Config config) {
    v1::Config without = config;
    EXPECT_TRUE(ResolveVideos({&none}, &without).ok());
    const absl::Status status = ResolveVideos({&some}, &config);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  for (const char* profile : {"llava_next", "gemma3", "smolvlm"}) {
    EXPECT_THAT(fault(ConfigOf(profile)),
                HasSubstr("model.profile " + std::string(profile)));
  }
  // InternVL's name with other images.
  v1::Config other = ConfigOf("internvl3");
  other.mutable_model()->mutable_image_family()->set_rule(
      v1::ImageFamily::RULE_FIXED_SIZE);
  EXPECT_THAT(fault(other), HasSubstr("model.profile internvl3"));
  v1::Config none_named = ConfigOf("qwen2_vl");
  none_named.mutable_model()->clear_profile();
  EXPECT_THAT(fault(none_named), HasSubstr("model.profile ''"));
  v1::Config device = ConfigOf("qwen2_vl");
  device.mutable_model()->set_decode(v1::Model::DECODE_DEVICE);
  EXPECT_THAT(fault(device), HasSubstr("model.decode: device"));
  device = ConfigOf("llava_video");
  device.mutable_model()->set_decode(v1::Model::DECODE_DEVICE);
  EXPECT_THAT(fault(device), HasSubstr("model.decode: device"));
  v1::Config split = ConfigOf("internvl3");
  split.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  EXPECT_THAT(fault(split), HasSubstr("balance.placement: split"));
}

}  // namespace
}  // namespace ballast
