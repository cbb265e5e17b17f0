#include "proto/schedule/fingerprint.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(FingerprintTest, EqualEntriesHaveEqualHashes) {
  const v1::Fingerprint a = MakeFingerprint({{"x", "1"}, {"y", "2"}});
  EXPECT_EQ(a.hash(), MakeFingerprint({{"y", "2"}, {"x", "1"}}).hash());
  EXPECT_EQ(a.hash().size(), 32u);
  EXPECT_EQ(a.entries_size(), 2);
}

// Each text is preceded by its length, so boundaries matter.
TEST(FingerprintTest, BoundariesMatter) {
  EXPECT_NE(MakeFingerprint({{"ab", "c"}}).hash(),
            MakeFingerprint({{"a", "bc"}}).hash());
  EXPECT_NE(MakeFingerprint({{"a", "1"}}).hash(),
            MakeFingerprint({{"a", "1"}, {"b", ""}}).hash());
}

TEST(FingerprintTest, NamesTheFirstDifferingKey) {
  const auto a =
      MakeFingerprint({{"a", "1"}, {"batch.micro", "32"}, {"z", "0"}});
  const auto b =
      MakeFingerprint({{"a", "1"}, {"batch.micro", "16"}, {"z", "1"}});
  const std::string text = DescribeDifference(a, "A", b, "B");
  EXPECT_THAT(text, HasSubstr(a.hash()));
  EXPECT_THAT(text, HasSubstr(b.hash()));
  EXPECT_THAT(text, HasSubstr("batch.micro is 32 with A and 16 with B"));
  EXPECT_THAT(text, Not(HasSubstr("z is")));
}

TEST(FingerprintTest, NamesAKeyMissingFromOneSide) {
  const auto a = MakeFingerprint({{"a", "1"}, {"c", "3"}});
  const auto b = MakeFingerprint({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  EXPECT_THAT(DescribeDifference(a, "A", b, "B"),
              HasSubstr("b is absent with A and 2 with B"));
  EXPECT_THAT(DescribeDifference(b, "B", a, "A"),
              HasSubstr("b is 2 with B and absent with A"));
}

TEST(FingerprintTest, CheckAcceptsEqualAndEmptyHashes) {
  const auto a = MakeFingerprint({{"a", "1"}});
  const auto b = MakeFingerprint({{"a", "2"}});
  EXPECT_TRUE(CheckSameFingerprint(a, "A", a, "A").ok());
  EXPECT_TRUE(CheckSameFingerprint(a, "A", v1::Fingerprint(), "B").ok());
  EXPECT_EQ(CheckSameFingerprint(a, "A", b, "B").code(),
            absl::StatusCode::kFailedPrecondition);
}

// Entries of every kind; tests change one of them.
std::map<std::string, std::string> SomeEntries() {
  return {{"balance.scope", "x"},
          {"batch.global", "64"},
          {"batch.micro", "32"},
          {"delivery.encoded.docs", "00"},
          {"index.docs", "00"},
          {"order.epochs", "1"},
          {"order.seed", "1234"},
          {"packing.mode", "x"},
          {"sources.0000", "docs weight 1"},
          {"topology.modules.vision.dp", "4"}};
}

TEST(FingerprintTest, ACheckpointMayChangeTheLayout) {
  const v1::Fingerprint before = MakeFingerprint(SomeEntries());
  for (const char* key :
       {"balance.scope", "batch.micro", "delivery.encoded.docs", "order.epochs",
        "packing.mode", "topology.modules.vision.dp"}) {
    auto entries = SomeEntries();
    entries[key] = "2";
    const v1::Fingerprint after = MakeFingerprint(entries);
    EXPECT_NE(after.hash(), before.hash()) << key;
    EXPECT_EQ(after.data_hash(), before.data_hash()) << key;
    EXPECT_TRUE(CheckSameData(before, after, "A").ok()) << key;
  }
}

TEST(FingerprintTest, ACheckpointMayNotChangeTheData) {
  const v1::Fingerprint before = MakeFingerprint(SomeEntries());
  for (const char* key :
       {"batch.global", "index.docs", "order.seed", "sources.0000"}) {
    auto entries = SomeEntries();
    entries[key] = "2";
    entries["batch.micro"] = "8";  // must not be the key named
    const v1::Fingerprint after = MakeFingerprint(entries);
    const absl::Status status = CheckSameData(before, after, "A");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(before.data_hash()));
    EXPECT_THAT(std::string(status.message()), HasSubstr(after.data_hash()));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(std::string("first differing key: ") + key + " is " +
                  SomeEntries()[key] + " in the checkpoint and 2 with A"));
  }
}

TEST(FingerprintTest, SourcesOfOtherSplitsAreNoDataOfThisOne) {
  auto entries = SomeEntries();
  entries["splits.valid.index.chat"] = "11";
  entries["splits.valid.sources.0000"] = "chat weight 1";
  const v1::Fingerprint train = MakeFingerprint(entries);
  const v1::Fingerprint valid = MakeFingerprint(entries, v1::SPLIT_VALID);
  EXPECT_EQ(train.hash(), valid.hash());
  EXPECT_NE(train.data_hash(), valid.data_hash());
  EXPECT_NE(train.hash(), MakeFingerprint(SomeEntries()).hash());
  EXPECT_EQ(train.data_hash(), MakeFingerprint(SomeEntries()).data_hash());

  auto other_train = entries;
  other_train["index.docs"] = "2";
  auto other_valid = entries;
  other_valid["splits.valid.index.chat"] = "2";
  auto other_order = entries;
  other_order["order.seed"] = "2";
  auto other_test = entries;
  other_test["splits.test.index.quiz"] = "2";
  const auto changes = [&](const auto& changed, v1::Split split) {
    return MakeFingerprint(changed, split).data_hash() !=
           MakeFingerprint(entries, split).data_hash();
  };
  EXPECT_TRUE(changes(other_train, v1::SPLIT_TRAIN));
  EXPECT_FALSE(changes(other_train, v1::SPLIT_VALID));
  EXPECT_FALSE(changes(other_valid, v1::SPLIT_TRAIN));
  EXPECT_TRUE(changes(other_valid, v1::SPLIT_VALID));
  EXPECT_TRUE(changes(other_order, v1::SPLIT_TRAIN));
  EXPECT_TRUE(changes(other_order, v1::SPLIT_VALID));
  EXPECT_FALSE(changes(other_test, v1::SPLIT_TRAIN));
  EXPECT_FALSE(changes(other_test, v1::SPLIT_VALID));
  EXPECT_THAT(
      std::string(CheckSameData(valid,
                                MakeFingerprint(other_valid, v1::SPLIT_VALID),
                                "A", v1::SPLIT_VALID)
                      .message()),
      HasSubstr("first differing key: splits.valid.index.chat is 11 in the "
                "checkpoint and 2 with A"));
}

// A state that was taken within the first step.
TEST(FingerprintTest, NamesTheKeyOfACheckpointAtStep0) {
  auto entries = SomeEntries();
  const v1::Fingerprint checkpoint = MakeFingerprint(entries);
  entries["order.seed"] = "another";
  const absl::Status status =
      CheckSameData(checkpoint, MakeFingerprint(entries), "A", v1::SPLIT_TRAIN,
                    /*next_step=*/0);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("first differing key: order.seed is "));
}

TEST(FingerprintTest, AcceptsCheckpointsWithOnlyAHash) {
  const v1::Fingerprint server = MakeFingerprint(SomeEntries());
  EXPECT_TRUE(CheckSameData({}, server, "A").ok());
  v1::Fingerprint checkpoint;
  checkpoint.set_data_hash(server.data_hash());
  EXPECT_TRUE(CheckSameData(checkpoint, server, "A").ok());
  checkpoint.set_data_hash("0123");
  EXPECT_THAT(std::string(CheckSameData(checkpoint, server, "A").message()),
              AllOf(HasSubstr("data fingerprint 0123 differs from"),
                    HasSubstr("ballastctl health --config")));
  checkpoint.clear_data_hash();
  checkpoint.set_hash(server.hash());
  EXPECT_TRUE(CheckSameData(checkpoint, server, "A").ok());
}

// SomeEntries with changes that alter steps from 10 and from 200 on.
std::map<std::string, std::string> ChangedEntries() {
  auto entries = SomeEntries();
  entries[FromStepKey(10, "order.skips")] = "2 steps";
  entries[FromStepKey(200, "batch.changes.200")] = "global 128";
  entries[FromStepKey(200, "index.new")] = "11";
  return entries;
}

TEST(FingerprintTest, TheDataBeforeAStepLeaveOutLaterChanges) {
  EXPECT_EQ(FromStepKey(10, "order.skips"), "from_step.0000000010.order.skips");
  const v1::Fingerprint plain = MakeFingerprint(SomeEntries());
  const v1::Fingerprint changed = MakeFingerprint(ChangedEntries());
  auto first = SomeEntries();
  first[FromStepKey(10, "order.skips")] = "2 steps";
  const v1::Fingerprint skipped = MakeFingerprint(first);
  EXPECT_EQ(plain.data_before_size(), 0);
  ASSERT_EQ(changed.data_before_size(), 2);
  EXPECT_EQ(changed.data_before(0).step(), 10u);
  EXPECT_EQ(changed.data_before(1).step(), 200u);
  for (const uint64_t step : {0, 1, 10}) {
    EXPECT_EQ(DataHashBefore(changed, step), plain.data_hash()) << step;
  }
  for (const uint64_t step : {11, 200}) {
    EXPECT_EQ(DataHashBefore(changed, step), skipped.data_hash()) << step;
  }
  EXPECT_EQ(DataHashBefore(changed, 201), changed.data_hash());
  // Changes are of train alone.
  const v1::Fingerprint valid =
      MakeFingerprint(ChangedEntries(), v1::SPLIT_VALID);
  EXPECT_EQ(valid.data_hash(),
            MakeFingerprint(SomeEntries(), v1::SPLIT_VALID).data_hash());
  EXPECT_EQ(valid.data_before_size(), 0);
}

TEST(FingerprintTest, ACheckpointGoesOnAfterChangesOfLaterSteps) {
  const v1::Fingerprint plain = MakeFingerprint(SomeEntries());
  const v1::Fingerprint changed = MakeFingerprint(ChangedEntries());
  const auto check = [](const v1::Fingerprint& checkpoint,
                        const v1::Fingerprint& server, uint64_t step) {
    return CheckSameData(checkpoint, server, "A", v1::SPLIT_TRAIN, step);
  };
  for (const uint64_t step : {0, 10}) {
    EXPECT_TRUE(check(plain, changed, step).ok());
    EXPECT_TRUE(check(changed, plain, step).ok());
  }
  for (const uint64_t step : {11, 1000}) {
    EXPECT_FALSE(check(plain, changed, step).ok());
    const absl::Status status = check(changed, plain, step);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("from_step.0000000010.order.skips is 2 steps in the "
                          "checkpoint and absent with A; it alters steps from "
                          "10 on"));
  }
  // Other data still differ, at every step.
  auto seed = ChangedEntries();
  seed["order.seed"] = "5";
  EXPECT_FALSE(check(plain, MakeFingerprint(seed), 0).ok());
}

// The data hash of a checkpoint made under changes that have been edited since.
TEST(FingerprintTest, AHashAloneMayBeThatOfLaterChanges) {
  v1::Fingerprint checkpoint;
  auto first = SomeEntries();
  first[FromStepKey(10, "order.skips")] = "2 steps";
  checkpoint.set_data_hash(MakeFingerprint(first).data_hash());
  const v1::Fingerprint server = MakeFingerprint(ChangedEntries());
  for (const uint64_t step : {0, 5, 10, 11, 200}) {
    EXPECT_TRUE(
        CheckSameData(checkpoint, server, "A", v1::SPLIT_TRAIN, step).ok())
        << step;
  }
  EXPECT_FALSE(
      CheckSameData(checkpoint, server, "A", v1::SPLIT_TRAIN, 201).ok());
}

}  // namespace
}  // namespace ballast
