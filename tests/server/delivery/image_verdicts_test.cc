#include "server/delivery/image_verdicts.h"

#include <optional>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ImageVerdictsTest, TheLastVerdictCounts) {
  ImageVerdicts verdicts;
  EXPECT_EQ(verdicts.Get(7), std::nullopt);
  verdicts.Put(7, absl::DataLossError("cut"));
  EXPECT_EQ(verdicts.Get(7), absl::DataLossError("cut"));
  verdicts.Put(7, absl::OkStatus());
  EXPECT_EQ(verdicts.Get(7), absl::OkStatus());
  EXPECT_EQ(verdicts.Get(7 + 64), std::nullopt);
}

TEST(ImageVerdictsTest, RemembersTheLatestPositions) {
  ImageVerdicts verdicts;
  for (uint64_t position = 0; position <= ImageVerdicts::kMost; ++position) {
    verdicts.Put(position, absl::OkStatus());
  }
  EXPECT_EQ(verdicts.Get(0), std::nullopt);
  EXPECT_EQ(verdicts.Get(1), absl::OkStatus());
}

}  // namespace
}  // namespace ballast
