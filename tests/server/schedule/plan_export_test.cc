#include "server/schedule/plan_export.h"

#include <sys/stat.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"
#include "server/schedule/group_order.h"

namespace ballast {
namespace {

TEST(ComparePlansTest, DataComeFirstInTheOrderOfSteps) {
  const std::map<std::string, std::string> a = {
      {"balance.window", "1"},
      {"order.seed", "1"},
      {FromStepKey(700, "order.skips"), "2 steps"},
      {FromStepKey(90, "batch.changes.90"), "global 8"},
      {"index.docs", "abc"}};
  std::map<std::string, std::string> b = a;
  EXPECT_TRUE(ComparePlans(MakeFingerprint(a), MakeFingerprint(b)).empty());
  b["balance.window"] = "2";
  b.erase(FromStepKey(700, "order.skips"));
  b[FromStepKey(90, "batch.changes.90")] = "global 16";
  b[FromStepKey(1000, "order.plan")] = "ddd";
  const auto found = ComparePlans(MakeFingerprint(a), MakeFingerprint(b));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].key, "batch.changes.90");
  EXPECT_EQ(found[0].from_step, 90u);
  EXPECT_EQ(found[0].old_value, "global 8");
  EXPECT_EQ(found[0].new_value, "global 16");
  EXPECT_EQ(found[1].key, "order.skips");
  EXPECT_EQ(found[1].from_step, 700u);
  EXPECT_EQ(found[1].new_value, std::nullopt);
  EXPECT_EQ(found[2].key, "order.plan");
  EXPECT_EQ(found[2].old_value, std::nullopt);
  EXPECT_FALSE(found[3].is_data);
  EXPECT_EQ(found[3].key, "balance.window");
  b["order.seed"] = "2";
  EXPECT_EQ(ComparePlans(MakeFingerprint(a), MakeFingerprint(b))[0].key,
            "order.seed");
}

TEST(PlanRowWriterTest, ReplacesNoDeviceOrPipe) {
  const std::string pipe = ::testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(
      PlanRowWriter::Create(pipe, v1::Config(), {}).status()));
}

using ::testing::ElementsAre;

TEST(FirstFitDecreasingTest, PacksByHand) {
  const std::vector<uint32_t> lengths = {4, 8, 1, 4, 2, 1};
  EXPECT_THAT(FirstFitDecreasing(lengths, 10),
              ElementsAre(ElementsAre(0, 2, 3, 5), ElementsAre(1, 4)));
  EXPECT_TRUE(FirstFitDecreasing({}, 10).empty());
}

// Against the rule written down: the first pack with room, longest first.
TEST(FirstFitDecreasingTest, IsFirstFitDecreasing) {
  constexpr uint64_t kCapacity = 1000;
  std::vector<uint32_t> lengths;
  for (uint64_t i = 0; i < 3000; ++i) {
    lengths.push_back(1 + Mix64(i) % (i % 7 == 0 ? 1000 : 300));
  }
  std::vector<uint32_t> order(lengths.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  std::vector<std::vector<uint32_t>> wanted;
  std::vector<uint64_t> used;
  for (const uint32_t i : order) {
    size_t p = 0;
    while (p < used.size() && used[p] + lengths[i] > kCapacity) ++p;
    if (p == used.size()) {
      used.push_back(0);
      wanted.emplace_back();
    }
    used[p] += lengths[i];
    wanted[p].push_back(i);
  }
  for (auto& pack : wanted) std::sort(pack.begin(), pack.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(FirstFitDecreasing(lengths, kCapacity), wanted);
}

}  // namespace
}  // namespace ballast
