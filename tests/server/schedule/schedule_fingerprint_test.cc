#include "server/schedule/schedule_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "proto/schedule/fingerprint.h"
#include "server/config/config_loader.h"
#include "server/config/topology.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/text/text_token.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

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
  MediaCounts media_counts() const override { return {{0, videos_, 0}}; }
  std::string digest() const override { return std::string(32, '0'); }

 private:
  const uint64_t videos_;
};

v1::Config GetConfig(const std::string& profile) {
  v1::Config config;
  config.mutable_model()->set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(config.mutable_model()).ok());
  return config;
}

TEST(CheckMediaModulesTest, MediaThatNoModuleTakesAreRefused) {
  const Videos none(0), some(3);
  v1::Config config = GetConfig("qwen2_5_omni");
  auto& modules = *config.mutable_topology()->mutable_modules();
  modules["language"].set_dp(1);
  modules["audio"].set_dp(1);
  EXPECT_TRUE(CheckMediaModules({&none}, config).ok());
  const absl::Status status = CheckMediaModules({&none, &some}, config);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("3 videos, and topology.modules has no "
                        "module vision"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("write `vision: {dp: N}`"));
  modules["vision"].set_dp(2);
  EXPECT_TRUE(CheckMediaModules({&none, &some}, config).ok());
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
    v1::Config config = GetConfig(profile);
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
    EXPECT_THAT(fault(GetConfig(profile)),
                HasSubstr("model.profile " + std::string(profile)));
  }
  // InternVL's name with other images.
  v1::Config other = GetConfig("internvl3");
  other.mutable_model()->mutable_image_family()->set_rule(
      v1::ImageFamily::RULE_FIXED_SIZE);
  EXPECT_THAT(fault(other), HasSubstr("model.profile internvl3"));
  v1::Config none_named = GetConfig("qwen2_vl");
  none_named.mutable_model()->clear_profile();
  EXPECT_THAT(fault(none_named), HasSubstr("model.profile ''"));
  v1::Config device = GetConfig("qwen2_vl");
  device.mutable_model()->set_decode(v1::Model::DECODE_DEVICE);
  EXPECT_THAT(fault(device), HasSubstr("model.decode: device"));
  device = GetConfig("llava_video");
  device.mutable_model()->set_decode(v1::Model::DECODE_DEVICE);
  EXPECT_THAT(fault(device), HasSubstr("model.decode: device"));
  v1::Config split = GetConfig("internvl3");
  split.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  EXPECT_THAT(fault(split), HasSubstr("balance.placement: split with model."
                                      "profile internvl3"));
  for (const char* profile : {"qwen2_vl", "qwen3_vl", "qwen2_5_omni"}) {
    v1::Config merged = GetConfig(profile);
    merged.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
    EXPECT_TRUE(ResolveVideos({&some}, &merged).ok()) << profile;
    merged.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
    merged.mutable_packing()->set_dynamic_cp(2);
    EXPECT_THAT(fault(merged), HasSubstr("packing.dynamic_cp does not carry"));
  }
}

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

v1::Fingerprint Make(int text_version) {
  const v1::Config config = JobConfig(2, 2, 8, 4);
  const FakeSourceIndex index(FormulaSamples(8));
  return ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                             *BatchSizes(config.batch()), nullptr,
                             {.text = text_version});
}

// The authors' rules are an entry, transformers' are what there was before, and
// a model without differences has neither.
TEST(ScheduleFingerprintTest, TellsWhoseRulesHold) {
  const FakeSourceIndex index(FormulaSamples(8));
  const auto make = [&](const std::string& profile, v1::Model::Rules rules) {
    v1::Config config = JobConfig(2, 2, 8, 4);
    config.mutable_model()->set_profile(profile);
    config.mutable_model()->set_chat_template(profile);
    config.mutable_model()->set_rules(rules);
    ApplyRules(config.mutable_model());
    return ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                               *BatchSizes(config.batch()), nullptr, {});
  };
  const auto authors = v1::Model::RULES_AUTHORS;
  const auto transformers = v1::Model::RULES_TRANSFORMERS;
  EXPECT_THAT(CheckSameFingerprint(make("internvl3", authors), "a",
                                   make("internvl3", transformers), "b")
                  .message(),
              HasSubstr("model.rules"));
  const v1::Fingerprint theirs = make("internvl3", transformers);
  for (const auto& entry : theirs.entries()) {
    EXPECT_NE(entry.key(), "model.rules");
    if (entry.key() == "model.profile") EXPECT_EQ(entry.value(), "internvl3");
  }
  EXPECT_EQ(make("hunyuan_vl", authors).hash(),
            make("hunyuan_vl", transformers).hash());
}

// Servers of releases that make other tokens of a text refuse each other.
TEST(ScheduleFingerprintTest, TellsTheRulesOfTexts) {
  const v1::Fingerprint three = Make(3);
  const v1::Fingerprint four = Make(4);
  const v1::Fingerprint five = Make(5);
  EXPECT_TRUE(CheckSameFingerprint(four, "a", Make(4), "b").ok());
  EXPECT_THAT(CheckSameFingerprint(four, "a", five, "b").message(),
              HasSubstr("delivery.text_rules is 4 with a and 5 with b"));
  EXPECT_THAT(CheckSameFingerprint(three, "a", four, "b").message(),
              HasSubstr("delivery.text_rules"));
  // What a server tells is this release's version.
  const v1::Config config = JobConfig(2, 2, 8, 4);
  const FakeSourceIndex index(FormulaSamples(8));
  EXPECT_EQ(ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                                *BatchSizes(config.batch()))
                .hash(),
            Make(kTextVersion).hash());
  // The index's digest covers the lengths.
  EXPECT_TRUE(CheckSameData(three, four, "b").ok());
}

// So that servers of this release and of those before serve one job.
TEST(ScheduleFingerprintTest, VersionThreeIsAsOfOldReleases) {
  const v1::Fingerprint fingerprint = Make(3);
  for (const auto& entry : fingerprint.entries()) {
    EXPECT_NE(entry.key(), "delivery.text_rules");
  }
}

// The text of fingerprints that releases have written into checkpoints, of
// configurations with every kind of key (fingerprints.txt). A case is
//   === NAME
//   YAML lines; `videos: true` first if the sources have videos
//   --- the first case's entries, KEY VALUE; of later ones, those that differ:
//   + KEY VALUE added or changed, - KEY without it; or + HASH alone, which
//   covers all entries
class VideoIndex : public FakeSourceIndex {
 public:
  VideoIndex() : FakeSourceIndex(FormulaSamples(8), std::string(32, 'v')) {}
  MediaCounts media_counts() const override { return {{0, 1, 0}}; }
};

// Servers whose FFmpeg may round pixels or audio otherwise refuse each other; a
// checkpoint resumes, and jobs of images do not care.
TEST(ScheduleFingerprintTest, TellsFfmpegWhereItDecodes) {
  const v1::Config config = JobConfig(2, 2, 8, 4);
  const VideoIndex moving;
  const FakeSourceIndex still(FormulaSamples(8));
  const auto make = [&](const SourceIndex& index, const std::string& ffmpeg) {
    return ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                               *BatchSizes(config.batch()), nullptr,
                               {.ffmpeg = ffmpeg, .processor = ""});
  };
  const v1::Fingerprint eight = make(moving, "FFmpeg 8.1.2");
  const v1::Fingerprint nine = make(moving, "FFmpeg 9.0");
  EXPECT_THAT(CheckSameFingerprint(eight, "a", nine, "b").message(),
              HasSubstr("delivery.ffmpeg is FFmpeg 8.1.2 with a and FFmpeg 9.0 "
                        "with b"));
  EXPECT_TRUE(CheckSameData(eight, nine, "b").ok());
  EXPECT_EQ(make(still, "FFmpeg 8.1.2").hash(), make(still, "9").hash());
  // What a server tells is the FFmpeg that it is built with.
  EXPECT_EQ(ScheduleFingerprint(config, {&moving}, v1::SPLIT_TRAIN,
                                *BatchSizes(config.batch()), nullptr,
                                {.processor = ""})
                .hash(),
            make(moving, kFfmpegVersion).hash());
  EXPECT_THAT(kFfmpegVersion, ::testing::MatchesRegex(
                                  "FFmpeg .+ \\(Lavc[0-9.]+, SwS[0-9.]+\\)"));
}

// Servers of different processors refuse each other; a checkpoint resumes.
TEST(ScheduleFingerprintTest, TellsAForeignProcessor) {
  const v1::Config config = JobConfig(2, 2, 8, 4);
  const FakeSourceIndex index(FormulaSamples(8));
  const auto make = [&](const std::string& processor) {
    return ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                               *BatchSizes(config.batch()), nullptr,
                               {.processor = processor});
  };
  EXPECT_THAT(
      CheckSameFingerprint(make(""), "a", make("aarch64"), "b").message(),
      HasSubstr("delivery.processor is absent with a and aarch64 "
                "with b"));
  EXPECT_TRUE(CheckSameData(make(""), make("aarch64"), "b").ok());
  // A server tells the processor that it is built for.
  EXPECT_EQ(ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                                *BatchSizes(config.batch()))
                .hash(),
            make(kProcessor).hash());
}

struct FingerprintCase {
  std::string name;
  std::string yaml;
  std::vector<std::string> lines;
};

std::vector<FingerprintCase> ReadCases() {
  std::ifstream file("tests/server/schedule/fingerprints.txt");
  EXPECT_TRUE(file.is_open());
  std::vector<FingerprintCase> cases;
  bool in_yaml = false;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "=== ")) {
      cases.push_back({line.substr(4), "", {}});
      in_yaml = true;
    } else if (line == "---") {
      in_yaml = false;
    } else if (in_yaml) {
      absl::StrAppend(&cases.back().yaml, line, "\n");
    } else if (!line.empty()) {
      cases.back().lines.push_back(line);
    }
  }
  return cases;
}

void SetCost(double linear, double quadratic, v1::Balance::Coefficients* cost) {
  cost->set_linear(linear);
  cost->set_quadratic(quadratic);
}

TEST(ScheduleFingerprintTest, TextIsThatOfOlderReleases) {
  const std::vector<FingerprintCase> cases = ReadCases();
  ASSERT_GE(cases.size(), 40u);
  std::map<std::string, std::string> base;
  for (const FingerprintCase& c : cases) {
    SCOPED_TRACE(c.name);
    absl::string_view yaml = c.yaml;
    const bool videos = absl::ConsumePrefix(&yaml, "videos: true\n");
    // These releases had the rules of transformers.
    constexpr char kRules[] = "rules: transformers";
    std::string text = absl::StrReplaceAll(
        yaml,
        {{"\nmodel: {", absl::StrCat("\nmodel: {", kRules, ", ")},
         {"\nmodel:\n  {", absl::StrCat("\nmodel:\n  {", kRules, ", ")},
         {"\nmodel:\n  p", absl::StrCat("\nmodel:\n  ", kRules, "\n  p")},
         {"\nmodel:\n  i", absl::StrCat("\nmodel:\n  ", kRules, "\n  i")}});
    if (text == yaml) text += "model: {rules: transformers}\n";
    auto loaded = ParseConfig(text, "F", "DIR");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    // What these releases took where no cost was given.
    if (!absl::StrContains(yaml, "cost: ")) {
      v1::Balance::Cost* cost =
          loaded->config.mutable_balance()->mutable_cost();
      if (cost->has_audio()) SetCost(1, 0, cost->mutable_audio());
      SetCost(1, 0, cost->mutable_vision());
      SetCost(0, 0, cost->mutable_language());
    }
    const FakeSourceIndex still(FormulaSamples(8));
    const VideoIndex moving;
    const std::vector<const SourceIndex*> indexes(
        loaded->config.sources_size(),
        videos ? static_cast<const SourceIndex*>(&moving) : &still);
    const auto sizes = BatchSizes(loaded->config.batch());
    ASSERT_TRUE(sizes.ok()) << sizes.status();
    const v1::Fingerprint fingerprint = ScheduleFingerprint(
        loaded->config, indexes, v1::SPLIT_TRAIN, *sizes, nullptr,
        {.text = 3,
         .positions = 1,
         .frames = 1,
         .ffmpeg = "",
         .processor = ""});
    std::map<std::string, std::string> entries = {
        {"HASH",
         absl::StrCat(fingerprint.hash(), " ", fingerprint.data_hash())}};
    for (const auto& entry : fingerprint.entries()) {
      entries[entry.key()] = entry.value();
    }
    std::vector<std::string> lines;
    for (const auto& [key, value] : entries) {
      if (base.empty()) {
        lines.push_back(absl::StrCat(key, " ", absl::CEscape(value)));
      } else if (base.count(key) == 0 || base[key] != value) {
        lines.push_back(absl::StrCat("+ ", key, " ", absl::CEscape(value)));
      }
    }
    for (const auto& [key, value] : base) {
      if (entries.count(key) == 0) lines.push_back(absl::StrCat("- ", key));
    }
    if (base.empty()) base = entries;
    const bool is_hash_alone = c.lines.size() == 1;
    if (is_hash_alone) lines.resize(1);  // "+ HASH"; capitals come first
    EXPECT_THAT(lines, ElementsAreArray(c.lines));
  }
}

}  // namespace

}  // namespace ballast
