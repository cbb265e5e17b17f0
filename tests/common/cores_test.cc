#include "common/cores.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(CoresTest, AMachineHasAtLeastOne) { EXPECT_GE(Cores(), 1u); }

TEST(CoresTest, ASettingOfZeroIsOnePerCore) {
  EXPECT_EQ(ThreadsOrCores(0), Cores());
  EXPECT_EQ(ThreadsOrCores(1), 1u);
  EXPECT_EQ(ThreadsOrCores(300), 300u);
}

}  // namespace
}  // namespace ballast
