#include "client/ballastctl/commands.h"

#include <memory>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

constexpr char kNobody[] = "unix:nobody.sock";

TEST(HealthTest, AsksAgainUntilTheServerServes) {
  const std::unique_ptr<FakeLoaderServer> server = FakeLoaderServer::Start();
  ManualClock clock;
  int connects = 0;
  const auto connect = [&]() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
    // The server starts between the second attempt and the third.
    return LoaderClient::Create(++connects < 3 ? kNobody : server->address());
  };
  std::ostringstream out;
  absl::Status status = absl::UnknownError("not asked");
  std::thread thread(
      [&] { status = AwaitHealth(connect, absl::Seconds(60), &clock, &out); });
  for (int i = 0; i < 2; ++i) {
    clock.AwaitSleepers(1);
    EXPECT_EQ(out.str(), "");
    clock.Advance(clock.sleeps().back());
  }
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(out.str(), "serving\n");
  EXPECT_EQ(connects, 3);
}

TEST(HealthTest, WithoutTimeToWaitItAsksOnce) {
  ManualClock clock;
  int connects = 0;
  std::ostringstream out;
  const absl::Status status = AwaitHealth(
      [&]() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
        ++connects;
        return LoaderClient::Create(kNobody);
      },
      absl::ZeroDuration(), &clock, &out);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(connects, 1);
  EXPECT_EQ(out.str(), "");
}

TEST(HealthTest, AServerThatDoesNotServeIsAlive) {
  const std::unique_ptr<FakeLoaderServer> server = FakeLoaderServer::Start();
  server->SetServing(false);
  ManualClock clock;
  for (const Wanted wanted : {Wanted::kAlive, Wanted::kServing}) {
    std::ostringstream out;
    const absl::Status status = AwaitHealth(
        [&]() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
          return LoaderClient::Create(server->address());
        },
        absl::ZeroDuration(), &clock, &out, wanted);
    const bool alive = wanted == Wanted::kAlive;
    EXPECT_EQ(status.ok(), alive) << status;
    EXPECT_EQ(out.str(), alive ? "not serving\n" : "");
  }
}

TEST(HealthTest, LastingErrorsEndItAtOnce) {
  ManualClock clock;
  std::ostringstream out;
  const absl::Status status = AwaitHealth(
      []() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
        return LoaderClient::Create("nonsense");
      },
      absl::Seconds(60), &clock, &out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace ballast
