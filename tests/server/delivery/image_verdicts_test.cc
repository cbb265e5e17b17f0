#include "server/delivery/image_verdicts.h"

#include <optional>
#include <thread>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ImageVerdictsTest, TheLastVerdictCounts) {
  ImageVerdicts verdicts;
  EXPECT_EQ(verdicts.Await(7), std::nullopt);
  verdicts.Put(7, absl::DataLossError("cut"));
  EXPECT_EQ(verdicts.Await(7), absl::DataLossError("cut"));
  verdicts.Put(7, absl::OkStatus());
  EXPECT_EQ(verdicts.Await(7), absl::OkStatus());
  EXPECT_EQ(verdicts.Await(7 + 64), std::nullopt);
}

TEST(ImageVerdictsTest, RemembersTheLatestPositions) {
  ImageVerdicts verdicts;
  for (uint64_t position = 0; position <= ImageVerdicts::kMost; ++position) {
    verdicts.Put(position, absl::OkStatus());
  }
  EXPECT_EQ(verdicts.Await(0), std::nullopt);
  EXPECT_EQ(verdicts.Await(1), absl::OkStatus());
}

TEST(ImageVerdictsTest, WaitsForWhoIsAboutToFindOut) {
  ImageVerdicts verdicts;
  verdicts.Begin(7);
  verdicts.Begin(7);
  std::optional<absl::Status> seen;
  std::thread waiter([&] { seen = verdicts.Await(7); });
  EXPECT_EQ(verdicts.Await(8), std::nullopt);
  verdicts.Put(7, absl::DataLossError("cut"));
  waiter.join();
  EXPECT_EQ(seen, absl::DataLossError("cut"));
  // The other has not found out yet; there is a verdict all the same.
  EXPECT_EQ(verdicts.Await(7), absl::DataLossError("cut"));
  verdicts.Put(7, absl::OkStatus());
  EXPECT_EQ(verdicts.Await(7), absl::OkStatus());
}

}  // namespace
}  // namespace ballast
