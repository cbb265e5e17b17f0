#include "server/service/peer_check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/mutex.h"
#include "proto/schedule/fingerprint.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Fingerprint Micro(const std::string& micro) {
  return MakeFingerprint({{"batch.global", "64"}, {"batch.micro", micro}});
}

v1::AttachResponse Answer(const v1::Fingerprint& fingerprint) {
  v1::AttachResponse response;
  *response.mutable_fingerprint() = fingerprint;
  return response;
}

TEST(PeerCheckTest, PeersAreTheOtherServers) {
  v1::Topology topology;
  EXPECT_THAT(PeerAddresses(topology, "unix:/a"), IsEmpty());
  for (const char* address : {"unix:/a", "unix:/b", "c:7070"}) {
    topology.add_servers()->set_address(address);
  }
  EXPECT_THAT(PeerAddresses(topology, "unix:/b"),
              ElementsAre("unix:/a", "c:7070"));
}

TEST(PeerCheckTest, OnlyAnotherFingerprintIsAFault) {
  const auto compare = [](absl::StatusOr<v1::AttachResponse> answer) {
    return ComparePeer(Micro("16"), "unix:/a", answer, "unix:/b");
  };
  EXPECT_EQ(*compare(Answer(Micro("16"))), true);
  EXPECT_EQ(*compare(absl::UnavailableError("not there")), false);
  EXPECT_EQ(*compare(absl::FailedPreconditionError("its own trouble")), false);
  EXPECT_EQ(*compare(v1::AttachResponse()), false);
  const absl::Status differs = compare(Answer(Micro("32"))).status();
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(differs.message()),
      AllOf(HasSubstr(Micro("16").hash() + " of server unix:/a"),
            HasSubstr(Micro("32").hash() + " of server unix:/b"),
            HasSubstr("first differing key: batch.micro is 16 with server "
                      "unix:/a and 32 with server unix:/b")));
}

TEST(PeerCheckTest, DelaysGrowAndEnd) {
  EXPECT_EQ(PeerRetryDelay(1), absl::Seconds(1));
  absl::Duration last, sum;
  int round = 1;
  for (; PeerRetryDelay(round).has_value(); ++round) {
    const absl::Duration delay = *PeerRetryDelay(round);
    EXPECT_GE(delay, last);
    EXPECT_LE(delay, 2 * std::max(last, absl::Seconds(0.5)));
    last = delay;
    sum += delay;
  }
  EXPECT_GT(sum, absl::Minutes(1));
  EXPECT_LT(sum, absl::Minutes(5));
  EXPECT_FALSE(PeerRetryDelay(round + 1).has_value());
}

// Answers as instructed; UNAVAILABLE without an instruction.
class FakeCaller final : public PeerCaller {
 public:
  struct Script {
    Mutex mutex;
    CondVar changed;
    std::map<std::string, v1::AttachResponse> answers ABSL_GUARDED_BY(mutex);
    std::vector<std::string> asked ABSL_GUARDED_BY(mutex);
    // Attach blocks until Cancel.
    bool hangs ABSL_GUARDED_BY(mutex) = false;
    bool cancelled ABSL_GUARDED_BY(mutex) = false;
  };
  explicit FakeCaller(std::shared_ptr<Script> script)
      : script_(std::move(script)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) override {
    MutexLock lock(&script_->mutex);
    script_->asked.push_back(address);
    script_->changed.NotifyAll();
    while (script_->hangs && !script_->cancelled) {
      script_->changed.Wait(&script_->mutex);
    }
    const auto found = script_->answers.find(address);
    if (found == script_->answers.end()) {
      return absl::UnavailableError("nobody there");
    }
    return found->second;
  }
  void Cancel() override {
    MutexLock lock(&script_->mutex);
    script_->cancelled = true;
    script_->changed.NotifyAll();
  }

 private:
  const std::shared_ptr<Script> script_;
};

class PeerCheckThreadTest : public ::testing::Test {
 protected:
  void Start() {
    check_ = *PeerCheck::Start({Micro("16"), "a"}, {"b", "c", "d"},
                               std::make_unique<FakeCaller>(script_), &clock_,
                               [this](absl::Status status) {
                                 MutexLock lock(&mutex_);
                                 mismatch_ = std::move(status);
                                 found_.NotifyAll();
                               });
  }
  void SetAnswer(const std::string& address, const std::string& micro) {
    MutexLock lock(&script_->mutex);
    script_->answers[address] = Answer(Micro(micro));
  }
  std::vector<std::string> asked() {
    MutexLock lock(&script_->mutex);
    return script_->asked;
  }
  absl::Status AwaitMismatch() {
    MutexLock lock(&mutex_);
    while (mismatch_.ok()) found_.Wait(&mutex_);
    return mismatch_;
  }

  ManualClock clock_;
  const std::shared_ptr<FakeCaller::Script> script_ =
      std::make_shared<FakeCaller::Script>();
  Mutex mutex_;
  CondVar found_;
  absl::Status mismatch_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<PeerCheck> check_;
};

TEST_F(PeerCheckThreadTest, DoesNotAskEqualPeersAgain) {
  SetAnswer("c", "16");
  Start();
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d"));
  SetAnswer("b", "16");
  clock_.Advance(absl::Seconds(1));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d", "b", "d"));
  SetAnswer("d", "32");
  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(std::string(AwaitMismatch().message()), HasSubstr("server d"));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(clock_.sleeps(), ElementsAre(absl::Seconds(1), absl::Seconds(2),
                                           PeerVerdict::kDiffersDelay));
}

TEST(PeerVerdictTest, AsksADifferingPeerUntilItIsGoneAndThenAsAtTheStart) {
  PeerVerdict verdict({"b", "c"});
  EXPECT_TRUE(verdict.status().ok());
  verdict.Note("b", absl::FailedPreconditionError("b differs"));
  verdict.Note("c", true);
  EXPECT_EQ(verdict.status().message(), "b differs");
  for (int round = 0; round < 1000; ++round) {
    EXPECT_THAT(verdict.ToAsk(), ElementsAre("b"));
    EXPECT_EQ(verdict.EndRound(), PeerVerdict::kDiffersDelay);
  }
  verdict.Note("b", false);
  EXPECT_TRUE(verdict.status().ok());
  EXPECT_THAT(verdict.silent(), ElementsAre("b"));
  for (int round = 1; PeerRetryDelay(round).has_value(); ++round) {
    EXPECT_EQ(verdict.EndRound(), *PeerRetryDelay(round));
  }
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  EXPECT_THAT(verdict.ToAsk(), ElementsAre("b", "c"));
  verdict.Note("b", true);
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
}

TEST(PeerVerdictTest, NamesTheFirstPeerThatDiffers) {
  PeerVerdict verdict({"b", "c"});
  verdict.Note("c", absl::FailedPreconditionError("c differs"));
  EXPECT_EQ(verdict.status().message(), "c differs");
  verdict.Note("b", absl::FailedPreconditionError("b differs"));
  EXPECT_EQ(verdict.status().message(), "b differs");
  verdict.Note("b", true);
  EXPECT_EQ(verdict.status().message(), "c differs");
}

TEST_F(PeerCheckThreadTest, ReportsThatADifferenceIsGone) {
  SetAnswer("b", "32");
  SetAnswer("c", "16");
  SetAnswer("d", "16");
  Start();
  EXPECT_THAT(std::string(AwaitMismatch().message()), HasSubstr("server b"));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d"));
  SetAnswer("b", "16");
  clock_.Advance(PeerVerdict::kDiffersDelay);
  {
    MutexLock lock(&mutex_);
    while (!mismatch_.ok()) found_.Wait(&mutex_);
  }
  check_->Stop();
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d", "b"));
}

TEST_F(PeerCheckThreadTest, AsksSilentPeersLessOftenInTheEnd) {
  Start();
  int rounds = 1;
  for (; PeerRetryDelay(rounds).has_value(); ++rounds) {
    clock_.AwaitSleepers(1);
    clock_.Advance(*PeerRetryDelay(rounds));
  }
  clock_.AwaitSleepers(1);
  EXPECT_EQ(asked().size(), size_t{3} * rounds);
  EXPECT_EQ(clock_.sleeps().back(), PeerVerdict::kWatchDelay);
  MutexLock lock(&mutex_);
  EXPECT_TRUE(mismatch_.ok());
}

// Of three equal servers one is started anew with another seed, and nobody else
// starts or calls.
TEST_F(PeerCheckThreadTest, FindsAPeerThatIsStartedAnewWithAnotherSeed) {
  for (const char* peer : {"b", "c", "d"}) SetAnswer(peer, "16");
  Start();
  clock_.AwaitSleepers(1);
  clock_.Advance(PeerVerdict::kWatchDelay);
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d", "b", "c", "d"));
  SetAnswer("c", "32");
  clock_.Advance(PeerVerdict::kWatchDelay);
  EXPECT_THAT(std::string(AwaitMismatch().message()), HasSubstr("server c"));
}

// While it starts it is silent: it is asked as often as at the start.
TEST(PeerVerdictTest, AsksAPeerThatBecomesSilentSoon) {
  PeerVerdict verdict({"b", "c"});
  for (const char* peer : {"b", "c"}) verdict.Note(peer, true);
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  verdict.Note("b", true);
  verdict.Note("c", false);
  EXPECT_EQ(verdict.EndRound(), *PeerRetryDelay(1));
  EXPECT_THAT(verdict.ToAsk(), ElementsAre("c"));
  verdict.Note("c", false);
  EXPECT_EQ(verdict.EndRound(), *PeerRetryDelay(2));
}

TEST(PeerVerdictTest, ARoundAsksAFewInTurn) {
  std::vector<std::string> peers;
  for (int i = 0; i < 20; ++i) peers.push_back(std::to_string(i));
  PeerVerdict verdict(peers);
  for (const std::string& peer : peers) verdict.Note(peer, true);
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  std::map<std::string, int> asked;
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(verdict.ToAsk().size(), PeerVerdict::kWatchedARound);
    for (const std::string& peer : verdict.ToAsk()) {
      ++asked[peer];
      verdict.Note(peer, true);
    }
    EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  }
  // 40 times 1 of 20.
  EXPECT_EQ(asked.size(), peers.size());
  for (const auto& [peer, times] : asked) EXPECT_EQ(times, 2) << peer;
}

TEST_F(PeerCheckThreadTest, StopsWhileAPeerHangs) {
  {
    MutexLock lock(&script_->mutex);
    script_->hangs = true;
  }
  Start();
  {
    MutexLock lock(&script_->mutex);
    while (script_->asked.empty()) script_->changed.Wait(&script_->mutex);
  }
  check_->Stop();
  EXPECT_THAT(asked(), ElementsAre("b"));
}

TEST_F(PeerCheckThreadTest, StopsWhileItSleeps) {
  Start();
  clock_.AwaitSleepers(1);
  check_.reset();
  EXPECT_EQ(asked().size(), 3);
}

}  // namespace
}  // namespace ballast
