#include "proto/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FingerprintTest, EqualEntriesHashAlike) {
  const v1::Fingerprint a = MakeFingerprint({{"x", "1"}, {"y", "2"}});
  EXPECT_EQ(a.hash(), MakeFingerprint({{"y", "2"}, {"x", "1"}}).hash());
  EXPECT_EQ(a.hash().size(), 32u);
  EXPECT_EQ(a.entries_size(), 2);
}

// Lengths stand before the texts, so what is key and what value matters.
TEST(FingerprintTest, BoundariesCount) {
  EXPECT_NE(MakeFingerprint({{"ab", "c"}}).hash(),
            MakeFingerprint({{"a", "bc"}}).hash());
  EXPECT_NE(MakeFingerprint({{"a", "1"}}).hash(),
            MakeFingerprint({{"a", "1"}, {"b", ""}}).hash());
}

TEST(FingerprintTest, NamesTheFirstDifferingKey) {
  const auto a = MakeFingerprint({{"a", "1"}, {"batch.micro", "32"}, {"z", "0"}});
  const auto b = MakeFingerprint({{"a", "1"}, {"batch.micro", "16"}, {"z", "1"}});
  const std::string text = DescribeDifference(a, "A", b, "B");
  EXPECT_THAT(text, HasSubstr(a.hash()));
  EXPECT_THAT(text, HasSubstr(b.hash()));
  EXPECT_THAT(text, HasSubstr("batch.micro is 32 with A and 16 with B"));
  EXPECT_THAT(text, Not(HasSubstr("z is")));
}

TEST(FingerprintTest, NamesAKeyThatOneLacks) {
  const auto a = MakeFingerprint({{"a", "1"}, {"c", "3"}});
  const auto b = MakeFingerprint({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  EXPECT_THAT(DescribeDifference(a, "A", b, "B"),
              HasSubstr("b is absent with A and 2 with B"));
  EXPECT_THAT(DescribeDifference(b, "B", a, "A"),
              HasSubstr("b is 2 with B and absent with A"));
}

TEST(FingerprintTest, CheckAcceptsEqualAndUnclaimed) {
  const auto a = MakeFingerprint({{"a", "1"}});
  const auto b = MakeFingerprint({{"a", "2"}});
  EXPECT_TRUE(CheckSameFingerprint(a, "A", a, "A").ok());
  EXPECT_TRUE(CheckSameFingerprint(a, "A", v1::Fingerprint(), "B").ok());
  EXPECT_EQ(CheckSameFingerprint(a, "A", b, "B").code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ballast
