#include "server/delivery/step_gate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace ballast {
namespace {

// No number of a step stands for "none".
TEST(StepGateTest, TheLastStepIsHeldOrNotAsAnyOther) {
  constexpr uint64_t kLast = std::numeric_limits<uint64_t>::max();
  StepGate gate(0, [](uint64_t) { return absl::OkStatus(); });
  gate.Begin();
  EXPECT_TRUE(gate.Look(kLast).ok());
  EXPECT_TRUE(gate.Enter(kLast).ok());
  EXPECT_TRUE(gate.Leave(kLast, /*made=*/false).ok());
  EXPECT_EQ(gate.reached_below(), 0u);
  EXPECT_TRUE(gate.Hold(kLast, "agreeing"));
  EXPECT_TRUE(absl::IsUnavailable(gate.Enter(kLast)));
  EXPECT_TRUE(gate.Enter(kLast - 1).ok());
}

}  // namespace
}  // namespace ballast
