#include "common/helper_pool.h"

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "tests/common/helper_probe.h"

namespace ballast {
namespace {

// Absolute: a helper has a working directory of its own.
const std::string kProbe =
    std::filesystem::absolute("tests/common/helper_probe").string();

struct Echo : HelperPool::Job {
  std::string said;
  std::string heard;
};

// Jobs that the probe repeats, joined by commas. It ends on a request with a
// `trap`.
class HelperPoolTest : public ::testing::Test {
 protected:
  HelperPool::Options Options(size_t processes) {
    return {.helper = {.name = "the probe",
                       .libraries = "no libraries",
                       .counters = &counters_},
            .launch =
                [] {
                  return StartHelper({.name = "ballast-probe", .path = kProbe});
                },
            .ask =
                [](HelperPool::Worker* worker,
                   absl::Span<HelperPool::Job* const> jobs) {
                  bool is_trap = false;
                  worker->request.clear();
                  for (HelperPool::Job* job : jobs) {
                    const std::string& said = static_cast<Echo*>(job)->said;
                    is_trap = is_trap || said == "trap";
                    absl::StrAppend(&worker->request, said, ",");
                  }
                  HelperProcess* const helper = worker->helper.get();
                  return helper->Ask([&]() -> absl::Status {
                    uint32_t kind = 0;
                    BALLAST_RETURN_IF_ERROR(helper->Send(
                        is_trap ? kTrap : kEcho, {worker->request}));
                    BALLAST_RETURN_IF_ERROR(
                        helper->Receive(1 << 20, &kind, &worker->answer));
                    const std::vector<std::string> heard =
                        absl::StrSplit(worker->answer, ',');
                    for (size_t i = 0; i < jobs.size(); ++i) {
                      static_cast<Echo*>(jobs[i])->heard = heard.at(i);
                    }
                    return absl::OkStatus();
                  });
                },
            .is_fault =
                [](const absl::Status& status) {
                  return absl::IsInvalidArgument(status);
                },
            .processes = processes,
            .most_jobs = 4};
  }

  static void Run(HelperPool* pool, std::vector<Echo>& echoes) {
    std::vector<HelperPool::Job*> jobs;
    for (Echo& echo : echoes) jobs.push_back(&echo);
    pool->Run(jobs);
  }

  HelperCounters counters_;
};

TEST_F(HelperPoolTest, RunsMoreJobsThanARequestHolds) {
  HelperPool pool(Options(1));
  std::vector<Echo> echoes(10);
  for (size_t i = 0; i < echoes.size(); ++i) echoes[i].said = absl::StrCat(i);
  Run(&pool, echoes);
  for (const Echo& echo : echoes) {
    EXPECT_TRUE(echo.status.ok());
    EXPECT_EQ(echo.heard, echo.said);
  }
  EXPECT_EQ(counters_.starts.value(), 1u);
}

TEST_F(HelperPoolTest, AFaultCostsItsJobAlone) {
  HelperPool pool(Options(1));
  std::vector<Echo> echoes(4);
  echoes[0].said = "a";
  echoes[1].said = "trap";
  echoes[2].said = "b";
  echoes[3].said = "c";
  Run(&pool, echoes);
  EXPECT_TRUE(absl::IsInvalidArgument(echoes[1].status));
  for (const size_t i : {0, 2, 3}) {
    EXPECT_TRUE(echoes[i].status.ok()) << echoes[i].status;
    EXPECT_EQ(echoes[i].heard, echoes[i].said);
  }
}

TEST_F(HelperPoolTest, ThreadsShareFewProcesses) {
  HelperPool pool(Options(2));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 25; ++i) {
        std::vector<Echo> one(1);
        one[0].said = absl::StrCat(t, " ", i);
        Run(&pool, one);
        ASSERT_TRUE(one[0].status.ok()) << one[0].status;
        EXPECT_EQ(one[0].heard, one[0].said);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(counters_.starts.value(), 2u);
}

TEST_F(HelperPoolTest, RestartEndsIdleProcesses) {
  HelperPool pool(Options(1));
  ASSERT_TRUE(pool.Start().ok());
  ASSERT_TRUE(pool.Start().ok());
  EXPECT_EQ(counters_.starts.value(), 1u);
  pool.Restart();
  std::vector<Echo> one(1);
  one[0].said = "again";
  Run(&pool, one);
  EXPECT_EQ(one[0].heard, "again");
  EXPECT_EQ(counters_.starts.value(), 2u);
}

}  // namespace
}  // namespace ballast
