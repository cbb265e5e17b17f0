#include "server/schedule/schedule_fingerprint.h"

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/schedule/fingerprint.h"
#include "server/config/batch_sizes.h"
#include "server/config/config_loader.h"
#include "server/text/text_version.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

v1::Fingerprint Make(int text_version) {
  const v1::Config config = JobConfig(2, 2, 8, 4);
  const FakeSourceIndex index(FormulaSamples(8));
  return ScheduleFingerprint(config, {&index}, v1::SPLIT_TRAIN,
                             *BatchSizes(config.batch()), text_version);
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
  uint64_t num_videos() const override { return 1; }
};

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

TEST(ScheduleFingerprintTest, TextIsThatOfOlderReleases) {
  const std::vector<FingerprintCase> cases = ReadCases();
  ASSERT_GE(cases.size(), 40u);
  std::map<std::string, std::string> base;
  for (const FingerprintCase& c : cases) {
    SCOPED_TRACE(c.name);
    absl::string_view yaml = c.yaml;
    const bool videos = absl::ConsumePrefix(&yaml, "videos: true\n");
    const auto loaded = ParseConfig(yaml, "F", "DIR");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const FakeSourceIndex still(FormulaSamples(8));
    const VideoIndex moving;
    const std::vector<const SourceIndex*> indexes(
        loaded->config.sources_size(),
        videos ? static_cast<const SourceIndex*>(&moving) : &still);
    const auto sizes = BatchSizes(loaded->config.batch());
    ASSERT_TRUE(sizes.ok()) << sizes.status();
    const v1::Fingerprint fingerprint = ScheduleFingerprint(
        loaded->config, indexes, v1::SPLIT_TRAIN, *sizes, 3);
    std::map<std::string, std::string> entries = {
        {"HASH", absl::StrCat(fingerprint.hash(), " ", fingerprint.data_hash())}};
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
