#include "common/cores.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(CoresTest, AMachineHasOne) { EXPECT_GE(Cores(), 1u); }

TEST(CoresTest, ASettingOfZeroIsOneACore) {
  EXPECT_EQ(ThreadsOrCores(0), Cores());
  EXPECT_EQ(ThreadsOrCores(1), 1u);
  EXPECT_EQ(ThreadsOrCores(300), 300u);
}

}  // namespace
}  // namespace ballast
