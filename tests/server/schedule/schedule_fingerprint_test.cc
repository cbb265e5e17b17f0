#include "server/schedule/schedule_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"
#include "server/config/batch_sizes.h"
#include "server/text/text_version.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

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

}  // namespace
}  // namespace ballast
