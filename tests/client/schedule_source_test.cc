#include "client/schedule_source.h"

#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/attach_all.h"
#include "proto/schedule/fingerprint.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Revision Change(uint64_t first_step, const std::string& hash) {
  v1::Revision revision;
  revision.set_first_step(first_step);
  revision.mutable_fingerprint()->set_hash(hash);
  return revision;
}

v1::AttachResponse Told(const std::vector<v1::Revision>& revisions,
                        const std::string& own = "own") {
  v1::AttachResponse told;
  told.set_server("a");
  told.mutable_fingerprint()->set_hash(own);
  for (const v1::Revision& revision : revisions) {
    *told.add_revisions() = revision;
  }
  return told;
}

TEST(RevisionChainTest, EachStepHasTheFingerprintOfItsRevision) {
  RevisionChain chain("own", std::vector<v1::Revision>{Change(5, "one")});
  ASSERT_TRUE(chain.Extend(Told({Change(5, "one"), Change(9, "two")})).ok());
  EXPECT_EQ(chain.HashAt(4), "own");
  EXPECT_EQ(chain.HashAt(5), "one");
  EXPECT_EQ(chain.HashAt(8), "one");
  EXPECT_EQ(chain.HashAt(9), "two");
  EXPECT_EQ(chain.Before(9).size(), 1);
  EXPECT_EQ(chain.Before(10).size(), 2);
  // A server that is behind tells nothing new.
  EXPECT_TRUE(chain.Extend(Told({Change(5, "one")})).ok());
  EXPECT_EQ(chain.HashAt(9), "two");
}

TEST(RevisionChainTest, RefusesAnythingElse) {
  RevisionChain chain("own", std::vector<v1::Revision>{Change(5, "one")});
  const auto refusal = [&](const v1::AttachResponse& told) {
    return std::string(chain.Extend(told).message());
  };
  EXPECT_THAT(refusal(Told({Change(5, "one")}, "another")),
              HasSubstr("has fingerprint another, wanted own"));
  EXPECT_THAT(refusal(Told({Change(5, "1")})), HasSubstr("other changes"));
  EXPECT_THAT(refusal(Told({Change(6, "one")})), HasSubstr("other changes"));
  chain.Note(7);
  EXPECT_THAT(refusal(Told({Change(5, "one"), Change(7, "two")})),
              HasSubstr("changed from step 7 on, and this rank has taken step "
                        "7 without"));
  EXPECT_EQ(chain.HashAt(7), "one");
  EXPECT_TRUE(chain.Extend(Told({Change(5, "one"), Change(8, "two")})).ok());
}

// A server that has a change from step 3 on.
FakeLoader Changed(const std::string& hash_from_3) {
  FakeLoader loader;
  loader.revisions = {Change(3, "one")};
  loader.on_schedule = [=](v1::StepSchedule* schedule) {
    if (schedule->step() >= 3) schedule->set_fingerprint(hash_from_3);
    return absl::OkStatus();
  };
  return loader;
}

absl::Status GetSteps(FakeLoader loader, uint64_t end) {
  const auto client = FakeLoaderClient(std::move(loader));
  LoaderClient* const servers[] = {client.get()};
  ScheduleSource::Options options;
  options.fingerprint = kSyntheticFingerprint;
  options.failover.first_backoff = absl::Nanoseconds(1);
  ScheduleSource source(servers, options);
  for (uint64_t step = 0; step < end; ++step) {
    const auto schedule = source.Get(step);
    if (!schedule.ok()) return schedule.status();
  }
  return absl::OkStatus();
}

TEST(RevisionChainTest, ARankLearnsOfAChangeWithItsFirstSchedule) {
  EXPECT_TRUE(GetSteps(Changed("one"), 6).ok());
}

// Its only server is too slow, or too busy, to tell of the change at once.
TEST(RevisionChainTest, ARankAsksAgainForAChange) {
  for (const absl::Status& passing : {absl::UnavailableError("restarting"),
                                      absl::DeadlineExceededError("slow"),
                                      absl::ResourceExhaustedError("busy")}) {
    FakeLoader loader = Changed("one");
    int calls = 0;
    loader.on_attach = [&] { return calls++ < 2 ? passing : absl::OkStatus(); };
    const absl::Status status = GetSteps(loader, 6);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(calls, 3);
  }
}

// A change may begin before a step that a rank has only asked about.
TEST(RevisionChainTest, AStepThatIsLookedAtIsNotTaken) {
  FakeLoader loader = Changed("one");
  bool changed = false;
  loader.on_schedule = [&](v1::StepSchedule* schedule) {
    if (changed && schedule->step() >= 3) schedule->set_fingerprint("one");
    return absl::OkStatus();
  };
  const auto client = FakeLoaderClient(std::move(loader));
  LoaderClient* const servers[] = {client.get()};
  ScheduleSource::Options options;
  options.fingerprint = kSyntheticFingerprint;
  ScheduleSource source(servers, options);
  ASSERT_TRUE(source.Look(100000).ok());
  ASSERT_TRUE(source.Get(2).ok());
  changed = true;
  const auto looked = source.Look(100000);
  ASSERT_TRUE(looked.ok()) << looked.status();
  EXPECT_EQ(looked->fingerprint(), "one");
  const auto taken = source.Get(3);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)->fingerprint(), "one");
}

TEST(RevisionChainTest, ARankRefusesAScheduleThatIsOfNoChange) {
  EXPECT_THAT(std::string(GetSteps(Changed("two"), 6).message()),
              HasSubstr("the schedule of step 3 has fingerprint two, wanted "
                        "one"));
  // The server tells of the change too late: the rank has taken its step.
  FakeLoader late = Changed("one");
  late.on_schedule = [](v1::StepSchedule* schedule) {
    if (schedule->step() >= 5) schedule->set_fingerprint("one");
    return absl::OkStatus();
  };
  EXPECT_THAT(std::string(GetSteps(late, 6).message()),
              HasSubstr("this rank has taken step 4 without that"));
}

TEST(RevisionChainTest, ARankStartsWithTheChangesThatAnyServerKnows) {
  FakeLoader behind;
  behind.address = "fake:2";
  const auto a = FakeLoaderClient(behind);
  const auto b = FakeLoaderClient(Changed("one"));
  FakeLoader other = Changed("one");
  other.revisions = {Change(4, "one")};
  const auto c = FakeLoaderClient(other);
  LoaderClient* const servers[] = {a.get(), b.get()};
  const auto attached = AttachAll(servers, {}, {});
  ASSERT_TRUE(attached.ok()) << attached.status();
  ASSERT_EQ(attached->revisions_size(), 1);
  EXPECT_EQ(attached->revisions(0).first_step(), 3);
  LoaderClient* const apart[] = {b.get(), c.get()};
  EXPECT_EQ(AttachAll(apart, {}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Data of `weight` up to a change, of `later` from step 10 on.
v1::Fingerprint Data(const std::string& pixels, const std::string& later) {
  std::map<std::string, std::string> entries = {
      {"sources.0000", "docs weight 1"}, {"model.max_pixels", pixels}};
  if (!later.empty()) {
    entries[FromStepKey(10, "order.mixture_changes.10")] = later;
  }
  return MakeFingerprint(entries);
}

v1::Revision Revision(uint64_t first_step, const v1::Fingerprint& fingerprint) {
  v1::Revision revision;
  revision.set_first_step(first_step);
  *revision.mutable_fingerprint() = fingerprint;
  return revision;
}

TEST(RevisionChainTest, ACheckpointComparesTheDataOfEachStepBefore) {
  const v1::Fingerprint own = Data("9", "");
  const v1::Fingerprint weights = Data("9", "docs weight 2");
  const v1::Fingerprint pixels = Data("4", "docs weight 2");
  const auto check = [](const v1::Fingerprint& checkpoint,
                        const std::vector<v1::Revision>& of_checkpoint,
                        const v1::Fingerprint& server,
                        const std::vector<v1::Revision>& of_server,
                        uint64_t next_step) {
    v1::AttachResponse told;
    *told.mutable_fingerprint() = server;
    for (const v1::Revision& revision : of_server) {
      *told.add_revisions() = revision;
    }
    return CheckSameData(checkpoint, of_checkpoint, told, "the servers",
                         v1::SPLIT_TRAIN, next_step)
        .ok();
  };
  const std::vector<v1::Revision> changed = {Revision(10, weights)};
  EXPECT_TRUE(check(own, changed, own, changed, 15));
  EXPECT_TRUE(check(own, {}, own, changed, 10));
  EXPECT_FALSE(check(own, {}, own, changed, 11));
  EXPECT_FALSE(check(own, changed, own, {}, 15));
  // A configuration with the change in it, from its start.
  EXPECT_TRUE(check(own, changed, weights, {}, 15));
  EXPECT_TRUE(check(weights, {}, own, changed, 15));
  // No configuration says other pixels from a step on.
  const std::vector<v1::Revision> smaller = {Revision(10, pixels)};
  EXPECT_TRUE(check(own, smaller, own, smaller, 15));
  EXPECT_FALSE(check(own, smaller, pixels, {}, 15));
  EXPECT_FALSE(check(own, smaller, own, changed, 15));
  // Without a checkpoint.
  EXPECT_TRUE(check(v1::Fingerprint(), {}, own, smaller, 0));
}

ScheduleSource::Options OptionsWith(Clock* clock) {
  ScheduleSource::Options options;
  options.fingerprint = kSyntheticFingerprint;
  options.failover.jitter = 0;
  options.failover.first_backoff = absl::Seconds(1);
  options.failover.patience = absl::Seconds(3);
  options.clock = clock;
  return options;
}

// A server that returns `status` for its first `failures` calls, and counts its
// calls.
FakeLoader Failing(int failures, const absl::Status& status, int* calls) {
  FakeLoader loader;
  loader.on_schedule = [=](v1::StepSchedule*) {
    return (*calls)++ < failures ? status : absl::OkStatus();
  };
  return loader;
}

TEST(ScheduleSourceTest, AsksOncePerStep) {
  int calls = 0;
  const auto client = FakeLoaderClient(Failing(0, absl::OkStatus(), &calls));
  LoaderClient* const servers[] = {client.get()};
  ScheduleSource source(servers, OptionsWith(Clock::Real()));
  for (const uint64_t step : {7, 7, 8, 8, 8, 7}) {
    const auto schedule = source.Get(step);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ((*schedule)->step(), step);
  }
  EXPECT_EQ(calls, 3);
}

TEST(ScheduleSourceTest, AsksTheNextServerAndStaysThere) {
  int first = 0, second = 0;
  const auto a = FakeLoaderClient(
      Failing(100, absl::DeadlineExceededError("hangs"), &first));
  const auto b = FakeLoaderClient(Failing(0, absl::OkStatus(), &second));
  LoaderClient* const servers[] = {a.get(), b.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  EXPECT_TRUE(source.Get(0).ok());
  EXPECT_TRUE(source.Get(1).ok());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  EXPECT_TRUE(clock.sleeps().empty());
}

TEST(ScheduleSourceTest, WaitsLongerEachTimeAndGivesUp) {
  int calls = 0;
  const auto client = FakeLoaderClient(
      Failing(100, absl::UnavailableError("restarting"), &calls));
  LoaderClient* const servers[] = {client.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  absl::Status end;
  std::thread getter([&] { end = source.Get(5).status(); });
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(1));
  clock.AwaitSleepers(1);
  clock.Advance(absl::Seconds(2));
  getter.join();
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(clock.sleeps(), ElementsAre(absl::Seconds(1), absl::Seconds(2)));
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(end.message(),
              HasSubstr("schedule of step 5: the only server cannot go on, 3s "
                        "after"));
}

TEST(ScheduleSourceTest, LastingErrorsOfTheOnlyServerAreNotRetried) {
  int calls = 0;
  const auto client =
      FakeLoaderClient(Failing(1, absl::InternalError("malformed"), &calls));
  LoaderClient* const servers[] = {client.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  EXPECT_EQ(source.Get(0).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(calls, 1);
}

TEST(ScheduleSourceTest, OneServersLastingFaultIsNotAnothers) {
  int first = 0, second = 0;
  const auto a =
      FakeLoaderClient(Failing(1, absl::InternalError("malformed"), &first));
  const auto b = FakeLoaderClient(Failing(0, absl::OkStatus(), &second));
  LoaderClient* const servers[] = {a.get(), b.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  EXPECT_TRUE(source.Get(0).ok());
  EXPECT_EQ(second, 1);
}

// A server that was restarted with other data, beside one with the job's.
TEST(ScheduleSourceTest, LeavesAServerWhoseFingerprintHasChanged) {
  FakeLoader other;
  other.on_schedule = [](v1::StepSchedule* schedule) {
    schedule->set_fingerprint("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f");
    return absl::OkStatus();
  };
  int calls = 0;
  const auto a = FakeLoaderClient(other);
  const auto b = FakeLoaderClient(Failing(0, absl::OkStatus(), &calls));
  LoaderClient* const servers[] = {a.get(), b.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  const auto schedule = source.Get(3);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ((*schedule)->fingerprint(), kSyntheticFingerprint);
  EXPECT_EQ(calls, 1);
}

TEST(ScheduleSourceTest, CancelEndsTheWait) {
  int calls = 0;
  const auto client =
      FakeLoaderClient(Failing(100, absl::UnavailableError("down"), &calls));
  LoaderClient* const servers[] = {client.get()};
  ManualClock clock;
  ScheduleSource source(servers, OptionsWith(&clock));
  absl::Status end;
  std::thread getter([&] { end = source.Get(0).status(); });
  clock.AwaitSleepers(1);
  source.Cancel();
  getter.join();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ballast
