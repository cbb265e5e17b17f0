#include "server/serve/service/revision_agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/delivery/step_gate.h"
#include "server/serve/service/revision_member.h"
#include "tests/fakes/synthetic_scheduler.h"

namespace ballast {
namespace {

v1::RevisionBook EmptyBook(const std::string& name) {
  v1::RevisionBook book;
  book.set_job("job");
  book.set_book(name);
  book.set_complete(true);
  return book;
}

v1::ConfigRevision Wanted(uint64_t first_step) {
  v1::ConfigRevision revision;
  revision.set_first_step(first_step);
  return revision;
}

TEST(RevisionAgreement, AChangeHoldsOnceItIsDecided) {
  RevisionAgreement decider(EmptyBook("d"));
  RevisionAgreement other(EmptyBook("o"));
  v1::ConfigRevision next;
  decider.Keep(*decider.Begin(Wanted(20), 10, &next));
  decider.SetUnderWay(next.attempt());
  EXPECT_EQ(next.number(), 1);
  EXPECT_EQ(next.attempt(), 1);
  EXPECT_FALSE(other.HoldFrom().has_value());
  other.Keep(*other.Prepare(next, 12));
  EXPECT_EQ(other.HoldFrom(), 20);
  other.Keep(**other.OnCommit(next, 12));
  EXPECT_FALSE(other.HoldFrom().has_value());
  ASSERT_EQ(other.book().revisions_size(), 1);
  EXPECT_EQ(other.book().revisions(0).first_step(), 20);
  // Said again, it changes nothing.
  EXPECT_FALSE((*other.OnCommit(next, 30)).has_value());
  EXPECT_FALSE(other.OnAbort(next).has_value());
}

TEST(RevisionAgreement, RefusesASecondChangeAtATime) {
  RevisionAgreement decider(EmptyBook("d"));
  v1::ConfigRevision first, second;
  decider.Keep(*decider.Begin(Wanted(20), 0, &first));
  decider.SetUnderWay(first.attempt());
  EXPECT_EQ(decider.Begin(Wanted(30), 0, &second).status().code(),
            absl::StatusCode::kAborted);
}

TEST(RevisionAgreement, RefusesAStepThatARankHasReached) {
  const RevisionAgreement other(EmptyBook("o"));
  const auto check = [&](uint64_t step, uint64_t reached) {
    return other.Check(1, step, reached).code();
  };
  EXPECT_EQ(check(10 + RevisionAgreement::kMargin, 10), absl::StatusCode::kOk);
  EXPECT_EQ(check(9 + RevisionAgreement::kMargin, 10),
            absl::StatusCode::kFailedPrecondition);
}

TEST(RevisionAgreement, ADecisionThatWasNotTakenIsAFailure) {
  RevisionAgreement decider(EmptyBook("d"));
  RevisionAgreement other(EmptyBook("o"));
  v1::ConfigRevision next;
  decider.Keep(*decider.Begin(Wanted(20), 0, &next));
  other.Keep(*other.Prepare(next, 0));
  v1::GetRevisionsResponse answer;
  answer.set_book("d");
  answer.set_attempts(1);
  answer.set_under_way(1);
  EXPECT_FALSE((*other.Learn(answer, true, 0)).has_value());
  // Another server knows nothing of it.
  answer.set_under_way(0);
  EXPECT_FALSE((*other.Learn(answer, false, 0)).has_value());
  const auto learnt = other.Learn(answer, true, 0);
  ASSERT_TRUE(learnt.ok() && learnt->has_value());
  EXPECT_FALSE((*learnt)->has_prepared());
}

TEST(RevisionAgreement, ADeciderWithoutItsFileDecidesNothing) {
  RevisionAgreement other(EmptyBook("o"));
  v1::ConfigRevision next = Wanted(20);
  next.set_number(1);
  next.set_book("d");
  next.set_attempt(1);
  other.Keep(*other.Prepare(next, 0));
  v1::GetRevisionsResponse answer;
  answer.set_server("A");
  answer.set_book("another");
  answer.set_attempts(7);
  EXPECT_FALSE((*other.Learn(answer, true, 0)).has_value());
  EXPECT_NE(other.WhyUndecided(answer).find("has lost its file"),
            std::string::npos);
  EXPECT_EQ(other.HoldFrom(), 20);
}

TEST(RevisionAgreement, RefusesToLearnWhatRanksHavePassed) {
  const RevisionAgreement other(EmptyBook("o"));
  v1::GetRevisionsResponse answer;
  *answer.add_revisions() = Wanted(20);
  EXPECT_TRUE((*other.Learn(answer, true, 20)).has_value());
  EXPECT_EQ(other.Learn(answer, true, 21).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Servers, the network between them and ranks, all from one seed. A server
// crashes between any two events and around each write; messages are lost,
// repeated and reordered; changes are offered at any time, and often two at
// once. Now and then a server loses its file.
class SimulatedJob {
 public:
  explicit SimulatedJob(uint64_t seed) : random_(seed) {
    const size_t servers = 2 + Draw(4);
    for (size_t i = 0; i < servers; ++i) {
      servers_.emplace_back();
      servers_[i].disk = EmptyBook(NewBook());
      Start(i);
    }
    ranks_.resize(1 + Draw(4), 0);
  }

  void Run(int events) {
    for (int i = 0; i < events; ++i) Event();
    // All is well again: everybody is told everything.
    calm_ = true;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (!servers_[i].up) Start(i);
    }
    for (int i = 0; i < 40; ++i) {
      for (size_t s = 0; s < servers_.size(); ++s) AskOthers(s);
      while (!network_.empty()) Deliver(0);
      if (answers_wanted_ > 0) Decide(false);
    }
    const uint64_t from = *std::min_element(ranks_.begin(), ranks_.end());
    for (int i = 0; i < 400; ++i) Train();
    stuck_ = *std::min_element(ranks_.begin(), ranks_.end()) == from;
  }

  // Every step of every rank has the revision that the job ended with.
  void Check() {
    const v1::RevisionBook& book = servers_[0].agreement->book();
    for (const Server& server : servers_) {
      ASSERT_FALSE(server.agreement->HoldFrom().has_value());
      ASSERT_EQ(server.agreement->book().revisions_size(),
                book.revisions_size());
    }
    for (const auto& [step, revisions] : trained_) {
      ASSERT_EQ(revisions.size(), 1) << "step " << step;
      ASSERT_EQ(*revisions.begin(), At(book, step)) << "step " << step;
    }
    // Once all is well, nothing waits for ever.
    EXPECT_EQ(stuck_, 0);
  }

  int changes() const { return servers_[0].disk.revisions_size(); }
  int refused() const { return refused_; }
  int lost_files() const { return lost_files_; }

 private:
  enum Kind { kPrepare, kYes, kNo, kCommit, kAbort, kAsk, kTell };
  struct Message {
    Kind kind;
    size_t from, to;
    v1::ConfigRevision revision;
    v1::GetRevisionsResponse known;
    int start = 0;  // of the server that asked
  };
  struct Server {
    v1::RevisionBook disk;
    bool up = true;
    int starts = 0;
    std::unique_ptr<RevisionAgreement> agreement;
    std::unique_ptr<StepGate> gate;
    // Since it started without a file.
    std::set<size_t> heard;
    uint64_t others_reached = 0;
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }
  bool Chance(int percent) { return !calm_ && Draw(100) < uint64_t(percent); }
  std::string NewBook() { return absl::StrCat("book", books_++); }

  static std::string At(const v1::RevisionBook& book, uint64_t step) {
    std::string found = "job";
    for (const v1::ConfigRevision& revision : book.revisions()) {
      if (revision.first_step() <= step) {
        found = absl::StrCat(revision.book(), "-", revision.attempt());
      }
    }
    return found;
  }

  void Start(size_t i) {
    Server& server = servers_[i];
    server.up = true;
    ++server.starts;
    server.heard.clear();
    server.others_reached = 0;
    server.disk = RevisionAgreement::Recovered(i == 0, server.disk);
    server.agreement = std::make_unique<RevisionAgreement>(server.disk);
    server.gate = std::make_unique<StepGate>(
        server.disk.reached_below(), [this, i](uint64_t below) {
          v1::RevisionBook book = servers_[i].agreement->book();
          book.set_reached_below(below);
          return Write(i, std::move(book)) ? absl::OkStatus()
                                           : absl::UnavailableError("crashed");
        });
    server.gate->Begin();
    Hold(i);
  }

  void Crash(size_t i) {
    servers_[i].up = false;
    if (i == 0) answers_wanted_ = 0;
  }

  // Returns false if the server crashed before or after the write.
  bool Write(size_t i, v1::RevisionBook book) {
    Server& server = servers_[i];
    if (Chance(3)) {
      Crash(i);
      return false;
    }
    server.disk = book;
    if (Chance(3)) {
      Crash(i);
      return false;
    }
    server.agreement->Keep(std::move(book));
    return true;
  }

  void Hold(size_t i) {
    Server& server = servers_[i];
    const auto from = server.agreement->HoldFrom();
    ASSERT_TRUE(server.gate->Hold(from, "agreeing"));
  }

  void Send(Message message) {
    if (Chance(10)) return;
    network_.push_back(message);
    if (Chance(10)) network_.push_back(std::move(message));
  }

  v1::GetRevisionsResponse Known(size_t i) const {
    const Server& server = servers_[i];
    const v1::RevisionBook& book = server.agreement->book();
    v1::GetRevisionsResponse known;
    known.set_job(book.job());
    known.set_book(book.book());
    known.set_attempts(book.attempts());
    known.set_under_way(server.agreement->under_way());
    *known.mutable_revisions() = book.revisions();
    known.set_reached_below(server.gate->reached_below());
    known.set_knows(server.agreement->knows());
    return known;
  }

  void AskOthers(size_t i) {
    if (!servers_[i].up) return;
    for (size_t to = 0; to < servers_.size(); ++to) {
      if (to != i) Send({kAsk, i, to, {}, {}, servers_[i].starts});
    }
  }

  void Event() {
    switch (Draw(12)) {
      case 0:
      case 1:
        Offer();
        break;
      case 2: {
        const size_t i = Draw(servers_.size());
        if (servers_[i].up && Chance(20)) Crash(i);
        break;
      }
      case 3: {
        const size_t i = Draw(servers_.size());
        if (servers_[i].up) break;
        // One at a time: all files together are the job's memory.
        const bool others_know =
            std::all_of(servers_.begin(), servers_.end(),
                        [](const Server& s) { return s.disk.complete(); });
        // Without the file of the server that decides, a change that is not
        // decided waits for a person.
        const bool loses = Chance(15) && others_know && i != 0;
        if (loses) {
          servers_[i].disk = EmptyBook(NewBook());
          servers_[i].disk.set_complete(false);
          ++lost_files_;
        }
        Start(i);
        break;
      }
      case 4:
        AskOthers(Draw(servers_.size()));
        break;
      case 5:
        if (answers_wanted_ > 0 && Chance(20)) Decide(false);
        break;
      case 6:
      case 7:
      case 8:
        if (!network_.empty()) Deliver(Draw(network_.size()));
        break;
      default:
        Train();
    }
  }

  void Offer() {
    Server& decider = servers_[0];
    if (!decider.up) return;
    const uint64_t reached = decider.gate->reached_below();
    v1::ConfigRevision next;
    auto book =
        decider.agreement->Begin(Wanted(reached + Draw(12)), reached, &next);
    if (!book.ok()) {
      ++refused_;
      return;
    }
    if (!Write(0, *std::move(book))) return;
    decider.agreement->SetUnderWay(next.attempt());
    offered_ = next;
    yes_.clear();
    answers_wanted_ = servers_.size();
    // Its own yes is no message.
    auto own = decider.agreement->Prepare(next, reached);
    if (!own.ok() || !decider.gate->Hold(next.first_step(), "")) {
      Decide(false);
      return;
    }
    if (!Write(0, *std::move(own))) return;
    yes_.insert(0);
    for (size_t i = 1; i < servers_.size(); ++i) {
      Send({kPrepare, 0, i, next, {}});
    }
  }

  void Decide(bool commit) {
    answers_wanted_ = 0;
    Server& decider = servers_[0];
    if (commit) {
      auto book = decider.agreement->OnCommit(offered_, 0);
      ASSERT_TRUE(book.ok() && book->has_value());
      if (!Write(0, **std::move(book))) return;
    } else {
      ++refused_;
      auto book = decider.agreement->OnAbort(offered_);
      if (book.has_value() && !Write(0, *std::move(book))) return;
    }
    decider.agreement->SetUnderWay(0);
    Hold(0);
    for (size_t i = 1; i < servers_.size(); ++i) {
      Send({commit ? kCommit : kAbort, 0, i, offered_, {}});
    }
  }

  void Deliver(size_t which) {
    const Message message = network_[which];
    network_.erase(network_.begin() + which);
    const size_t i = message.to;
    Server& server = servers_[i];
    if (!server.up) return;
    const uint64_t reached = server.gate->reached_below();
    switch (message.kind) {
      case kPrepare: {
        // A step that is held stays so.
        const uint64_t first = message.revision.first_step();
        const uint64_t now = server.agreement->HoldFrom().value_or(first);
        const bool held = server.gate->Hold(std::min(first, now), "");
        auto book = server.agreement->Prepare(message.revision, reached);
        const bool yes = held && book.ok();
        if (yes && !Write(i, *std::move(book))) return;
        Hold(i);
        Send({yes ? kYes : kNo, i, message.from, message.revision, {}});
        break;
      }
      case kYes:
        if (answers_wanted_ == 0 ||
            message.revision.attempt() != offered_.attempt()) {
          break;
        }
        yes_.insert(message.from);
        if (yes_.size() == servers_.size()) Decide(true);
        break;
      case kNo:
        if (answers_wanted_ > 0 &&
            message.revision.attempt() == offered_.attempt()) {
          Decide(false);
        }
        break;
      case kCommit: {
        auto book = server.agreement->OnCommit(message.revision, reached);
        if (book.ok() && book->has_value()) {
          if (!Write(i, **std::move(book))) return;
          Hold(i);
        }
        break;
      }
      case kAbort: {
        auto book = server.agreement->OnAbort(message.revision);
        if (book.has_value() && Write(i, *std::move(book))) Hold(i);
        break;
      }
      case kAsk:
        Send({kTell, i, message.from, {}, Known(i), message.start});
        break;
      case kTell: {
        // The answer to a call that ended with the process.
        if (message.start != server.starts) break;
        auto book =
            server.agreement->Learn(message.known, message.from == 0, reached);
        ASSERT_TRUE(book.ok()) << book.status();
        if (book->has_value() && !Write(i, **std::move(book))) return;
        if (!server.agreement->knows()) {
          server.others_reached =
              std::max(server.others_reached, message.known.reached_below());
          if (!RevisionAgreement::IsComplete(message.known)) break;
          server.heard.insert(message.from);
          if (server.heard.size() + 1 == servers_.size()) {
            const uint64_t below =
                server.others_reached + RevisionAgreement::kLost;
            if (!Write(i, server.agreement->Complete(below))) return;
            server.gate->Raise(below);
          }
        }
        if (server.agreement->knows()) Hold(i);
        break;
      }
    }
  }

  // A rank trains its next step with any server. Ranks wait for each other at
  // the end of a step.
  void Train() {
    uint64_t& step = ranks_[Draw(ranks_.size())];
    if (step > *std::min_element(ranks_.begin(), ranks_.end())) return;
    Server& server = servers_[Draw(servers_.size())];
    if (!server.up || !server.gate->Enter(step).ok()) return;
    if (!server.gate->Leave(step, /*made=*/true).ok()) return;
    trained_[step].insert(At(server.agreement->book(), step));
    ++step;
  }

  std::mt19937_64 random_;
  bool calm_ = false;
  int books_ = 0;
  int refused_ = 0;
  int lost_files_ = 0;
  int stuck_ = 0;
  std::vector<Server> servers_;
  std::deque<Message> network_;
  v1::ConfigRevision offered_;
  std::set<size_t> yes_;
  size_t answers_wanted_ = 0;
  std::vector<uint64_t> ranks_;
  std::map<uint64_t, std::set<std::string>> trained_;
};

TEST(RevisionAgreement, NoStepIsTrainedUnderTwoRevisions) {
  int changes = 0, refused = 0, lost = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SimulatedJob job(seed);
    job.Run(700);
    job.Check();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
    changes += job.changes();
    refused += job.refused();
    lost += job.lost_files();
  }
  // The faults leave room for both.
  EXPECT_GT(changes, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GT(lost, 50);
  RecordProperty("changes", changes);
  RecordProperty("refused", refused);
  RecordProperty("lost_files", lost);
  std::cout << changes << " changes, " << refused << " refused, " << lost
            << " lost files\n";
}

// A book in memory, whose next writes may fail.
class FakeStore final : public RevisionStore {
 public:
  struct Disk {
    v1::RevisionBook book;
    int fails = 0;
  };
  explicit FakeStore(Disk* disk) : disk_(*disk) {}

  absl::StatusOr<v1::RevisionBook> Read(const std::string& job,
                                        const std::string& server,
                                        bool) const override {
    v1::RevisionBook book = disk_.book;
    book.set_job(job);
    book.set_server(server);
    book.set_book("book of " + server);
    book.set_complete(true);
    return book;
  }
  absl::Status Write(const v1::RevisionBook& book) override {
    if (disk_.fails > 0) {
      --disk_.fails;
      return absl::UnavailableError("No space left on device");
    }
    disk_.book = book;
    return absl::OkStatus();
  }

 private:
  Disk& disk_;
};

// A job whose revisions are all alike.
class FakeJob final : public RevisedJob {
 public:
  explicit FakeJob(const Scheduler* own) : RevisedJob(own) {}
  absl::StatusOr<std::unique_ptr<Candidate>> Open(
      const std::string& config, uint64_t first_step) const override {
    auto candidate = std::make_unique<Candidate>();
    candidate->first_step = first_step;
    candidate->config = config;
    candidate->fingerprint = config;
    return candidate;
  }
  void Apply(std::unique_ptr<Candidate>) override { ++revisions_; }
  size_t revisions() const override { return revisions_; }

 private:
  size_t revisions_ = 0;
};

// The server that decides finds its disk full at the decision. Found by seed
// 540 of the simulation, whose servers waited for a person.
TEST(RevisionMember, ADecisionIsWrittenOnceTheDiskIsWell) {
  const SyntheticScheduler own{SyntheticJob()};
  FakeStore::Disk disk;
  auto member = RevisionMember::Create({"a", {"b"}, "a"},
                                       std::make_unique<FakeStore>(&disk),
                                       std::make_unique<FakeJob>(&own));
  ASSERT_TRUE(member.ok()) << member.status();
  (*member)->gate()->Begin();
  v1::ChangeRequest request;
  request.set_config("another");
  request.set_first_step(20);
  v1::ChangeResponse response;
  const auto wanted = (*member)->Offer(request, &response);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const auto attempt = (*member)->Begin(*wanted);
  ASSERT_TRUE(attempt.ok()) << attempt.status();
  ASSERT_TRUE((*member)->Prepare(*attempt).ok());
  // The other server has said yes.
  disk.fails = 2;
  EXPECT_TRUE(absl::IsUnavailable((*member)->Commit(*attempt)));
  for (int look = 0; look < 2; ++look) {
    EXPECT_TRUE((*member)->waits());
    EXPECT_EQ((*member)->Known(0).under_way(), attempt->attempt());
    EXPECT_TRUE(absl::IsUnavailable((*member)->gate()->Enter(20)));
    (*member)->FinishLeft();
    (*member)->EndLook(absl::OkStatus());
  }
  EXPECT_FALSE((*member)->waits());
  EXPECT_EQ((*member)->Known(0).under_way(), 0);
  EXPECT_EQ(disk.book.revisions_size(), 1);
  EXPECT_TRUE((*member)->gate()->Enter(20).ok());
}

}  // namespace
}  // namespace ballast
