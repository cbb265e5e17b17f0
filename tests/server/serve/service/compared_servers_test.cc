#include "server/serve/service/compared_servers.h"

#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

v1::GetHistoryResponse History(int points) {
  v1::GetHistoryResponse history;
  history.set_server("node-9");
  history.set_start(100);
  v1::GetHistoryResponse::Column* steps = history.add_columns();
  steps->set_name("step");
  for (int i = 0; i < points; ++i) {
    history.add_seconds(100 + 5 * i);
    steps->add_values(i);
  }
  return history;
}

TEST(CheckHistoryTest, TakesWhatServersSend) {
  EXPECT_TRUE(CheckHistory(History(0)).ok());
  v1::GetHistoryResponse history = History(360);
  EXPECT_TRUE(CheckHistory(history).ok());
  history.mutable_columns(0)->set_values(
      3, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(CheckHistory(history).ok());
}

TEST(CheckHistoryTest, RefusesWhatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::function<void(v1::GetHistoryResponse*)>> faults = {
      [](auto* h) { *h = History(361); },
      [](auto* h) { h->mutable_columns(0)->add_values(1); },
      [](auto* h) { h->mutable_columns(0)->clear_name(); },
      [](auto* h) { h->mutable_columns(0)->set_name(std::string(513, 'x')); },
      [](auto* h) { h->set_server(std::string(513, 'x')); },
      [](auto* h) { h->set_seconds(1, 100); },
      [&](auto* h) { h->set_seconds(1, nan); },
      [&](auto* h) { h->set_start(nan); },
      [](auto* h) {
        for (int i = 0; i < 64; ++i) *h->add_columns() = h->columns(0);
      },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    v1::GetHistoryResponse history = History(3);
    faults[i](&history);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckHistory(history))) << i;
  }
}

class ComparedServersTest : public ::testing::Test {
 protected:
  nlohmann::json Ask(size_t server = 0, int seconds = 3600) {
    return nlohmann::json::parse(
        compared_.Json(server, absl::Seconds(seconds)));
  }

  ManualClock clock_;
  absl::StatusOr<v1::GetHistoryResponse> answer_ = History(2);
  std::vector<std::string> calls_;
  ComparedServers compared_{
      {"a:1", "b:2"},
      [this](const std::string& address, uint32_t seconds) {
        calls_.push_back(absl::StrCat(address, " ", seconds));
        return answer_;
      },
      &clock_};
};

TEST_F(ComparedServersTest, NamesTheServersAndDrawsOne) {
  const nlohmann::json json = Ask(1, 900);
  EXPECT_EQ(json["addresses"], (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(json["history"]["server"], "node-9");
  EXPECT_EQ(json["history"]["start"], 100);
  EXPECT_EQ(json["history"]["columns"],
            (std::vector<std::string>{"seconds", "step"}));
  EXPECT_EQ(json["history"]["points"],
            (std::vector<std::vector<double>>{{100, 0}, {105, 1}}));
  EXPECT_EQ(json["error"], "");
  EXPECT_EQ(json["age"], 0);
  EXPECT_EQ(calls_, (std::vector<std::string>{"b:2 900"}));
}

TEST_F(ComparedServersTest, AsksAServerOnceForAllPages) {
  Ask();
  Ask();
  EXPECT_EQ(calls_.size(), 1);
  Ask(0, 900);  // another range
  EXPECT_EQ(calls_.size(), 2);
  clock_.Advance(ComparedServers::kKeep);
  Ask(0, 900);
  EXPECT_EQ(calls_.size(), 3);
}

TEST_F(ComparedServersTest, KeepsTheLastAnswerOfADeadServer) {
  answer_ = absl::UnavailableError("nobody \"there\"");
  EXPECT_EQ(Ask()["error"], "nobody \"there\"");
  EXPECT_TRUE(Ask()["history"].is_null());
  EXPECT_TRUE(Ask()["age"].is_null());
  clock_.Advance(absl::Seconds(5));
  answer_ = History(2);
  EXPECT_EQ(Ask()["error"], "");
  clock_.Advance(absl::Seconds(5));
  answer_ = absl::UnavailableError("gone");
  const nlohmann::json json = Ask();
  EXPECT_EQ(json["error"], "gone");
  EXPECT_EQ(json["history"]["server"], "node-9");
  EXPECT_EQ(json["age"], 5);
}

TEST_F(ComparedServersTest, AStrangeAnswerIsAnError) {
  answer_ = History(400);
  EXPECT_THAT(Ask()["error"].get<std::string>(),
              HasSubstr("cannot be drawn: 400 points"));
  EXPECT_THAT(Ask(2)["error"].get<std::string>(), HasSubstr("has 2 entries"));
  ComparedServers none({}, nullptr, &clock_);
  EXPECT_EQ(none.Json(0, absl::Hours(1)),
            R"({"addresses":[],"history":null,"age":null,"error":""})");
}

// One caller waits for a server that is silent; others go on.
TEST(ComparedServersThreadsTest, OneCallAtATime) {
  ManualClock clock;
  Mutex mutex;
  CondVar changed;
  int calls = 0;
  bool may_end = false;
  ComparedServers compared(
      {"a:1"},
      [&](const std::string&, uint32_t) {
        MutexLock lock(&mutex);
        ++calls;
        changed.NotifyAll();
        while (!may_end) changed.Wait(&mutex);
        return History(1);
      },
      &clock);
  std::thread first([&] { compared.Json(0, absl::Hours(1)); });
  {
    MutexLock lock(&mutex);
    while (calls == 0) changed.Wait(&mutex);
  }
  EXPECT_THAT(compared.Json(0, absl::Hours(1)), HasSubstr("\"history\":null"));
  {
    MutexLock lock(&mutex);
    may_end = true;
    changed.NotifyAll();
  }
  first.join();
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(compared.Json(0, absl::Hours(1)), HasSubstr("node-9"));
}

}  // namespace
}  // namespace ballast
