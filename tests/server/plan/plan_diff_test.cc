#include "server/plan/plan_diff.h"

#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"

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

}  // namespace
}  // namespace ballast
