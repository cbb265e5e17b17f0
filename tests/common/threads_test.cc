#include "common/threads.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/no_threads.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(RunAllTest, RunsAllWhereTheSystemGivesNoThread) {
  int runs = 0;
  const NoThreads limit;
  EXPECT_TRUE(RunAll(20, 4, [&](size_t) {
                ++runs;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(runs, 20);
}

TEST(StartThreadTest, SaysWhatTheThreadIsFor) {
  std::atomic<bool> ran{false};
  absl::StatusOr<std::thread> thread =
      StartThread("count sheep", [&] { ran = true; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(ran);

  const NoThreads limit;
  const absl::Status refused =
      StartThread("count sheep", [&] { ran = false; }).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(StartsWith("no thread to count sheep: "),
                    HasSubstr("raise the limit of processes")));
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace ballast
