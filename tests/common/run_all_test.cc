#include "common/run_all.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

namespace ballast {
namespace {

TEST(RunAllTest, RunsEachNumberOnce) {
  for (const size_t threads : {0u, 1u, 3u, 50u}) {
    std::vector<std::atomic<int>> runs(20);
    EXPECT_TRUE(RunAll(runs.size(), threads, [&](size_t i) {
                  ++runs[i];
                  return absl::OkStatus();
                }).ok());
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
  EXPECT_TRUE(RunAll(0, 4, [](size_t) {
                return absl::InternalError("none to run");
              }).ok());
}

TEST(RunAllTest, ReturnsTheFirstErrorByNumberAndBeginsNoMore) {
  for (const size_t threads : {1u, 4u}) {
    std::atomic<size_t> runs{0};
    const absl::Status status = RunAll(10'000, threads, [&](size_t i) {
      ++runs;
      return i >= 5 ? absl::InternalError(std::to_string(i)) : absl::OkStatus();
    });
    EXPECT_EQ(status.message(), "5");
    // Each thread at most one after the error.
    EXPECT_LE(runs, 6 + threads);
  }
}

}  // namespace
}  // namespace ballast
