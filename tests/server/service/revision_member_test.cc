#include "server/service/revision_member.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/fakes/synthetic_scheduler.h"

namespace ballast {
namespace {

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
