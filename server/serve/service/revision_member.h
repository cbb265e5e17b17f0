#ifndef BALLAST_SERVER_SERVE_SERVICE_REVISION_MEMBER_H_
#define BALLAST_SERVER_SERVE_SERVICE_REVISION_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/revision_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/step_gate.h"
#include "server/schedule/scheduler.h"
#include "server/serve/service/revision_agreement.h"

namespace ballast {

// The scheduler of train of a job that is changed while it runs: each step
// comes from the scheduler of its revision. Other splits, fingerprint() and
// job() follow the job's own configuration. Thread-safe.
class RevisedScheduler final : public Scheduler {
 public:
  // `own` follows the job's own configuration. Neither it nor the others are
  // owned, and all outlive this.
  explicit RevisedScheduler(const Scheduler* own) : own_(own) {}

  // Steps from `first_step` on, which is above any earlier Add's, come from
  // `scheduler`.
  void Add(uint64_t first_step, const Scheduler* scheduler);

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    return At(step).Schedule(step);
  }
  const v1::Fingerprint& fingerprint() const override {
    return own_->fingerprint();
  }
  const v1::Job& job() const override { return own_->job(); }
  const v1::Job& job_at(uint64_t step) const override { return At(step).job(); }
  absl::StatusOr<v1::GetMixtureResponse> MixtureBefore(
      uint64_t step) const override {
    return At(step).MixtureBefore(step);
  }
  OrderedSample OrderedAt(uint64_t position) const override;
  std::vector<v1::Revision> revisions() const override;
  // Also of the schedulers that are added later.
  void FindInParts(Clock* clock) const override;

 protected:
  const Scheduler* Find(v1::Split split) const override;

 private:
  struct Revision {
    uint64_t first_step;
    uint64_t first_position;
    const Scheduler* scheduler;
  };
  const Scheduler& At(uint64_t step) const;

  const Scheduler* const own_;
  mutable Mutex mutex_;
  mutable Clock* clock_ ABSL_GUARDED_BY(mutex_) = nullptr;  // FindInParts
  std::vector<Revision> revisions_ ABSL_GUARDED_BY(mutex_);
};

// Interface to the opened jobs of all revisions: what a server serves its steps
// from. They stay open until the end, since a rank may resume at any step.
// Thread-compatible; scheduler() is thread-safe.
class RevisedJob {
 public:
  virtual ~RevisedJob() = default;

  // A revision that this server can serve.
  struct Candidate {
    virtual ~Candidate() = default;

    uint64_t first_step = 0;
    std::string config;
    std::string fingerprint;
    std::vector<std::string> differences;  // ListDifferences
    std::vector<std::string> notes;        // ListUntaken
  };

  // Composes the revision of `config`, the text of a file, after the last one,
  // and opens it; changes nothing. Blocks on the disk. Errors: as the job's.
  virtual absl::StatusOr<std::unique_ptr<Candidate>> Open(
      const std::string& config, uint64_t first_step) const = 0;

  // Serves the steps from its first one on by `candidate`, which Open returned
  // and which follows the last one.
  virtual void Apply(std::unique_ptr<Candidate> candidate) = 0;

  virtual size_t revisions() const = 0;

  RevisedScheduler* scheduler() { return &scheduler_; }
  const std::string& fingerprint() const {
    return scheduler_.fingerprint().hash();
  }

 protected:
  // `own` is the scheduler of the job's own configuration, not owned; it
  // outlives this.
  explicit RevisedJob(const Scheduler* own) : scheduler_(own) {}

  RevisedScheduler scheduler_;
};

// Interface to the disk that keeps a server's RevisionBook. All functions block
// on it. Thread-compatible.
class RevisionStore {
 public:
  virtual ~RevisionStore() = default;

  // Reads the book. One that is missing is an empty book with a new random
  // name, which is not written yet; it is complete if `alone`, where no other
  // server could know more. `job` is the fingerprint of the job's own
  // configuration, `server` this server's name. Errors: FAILED_PRECONDITION
  // (the book is of another job or server), DATA_LOSS (it is damaged); as
  // ReadSmallFile.
  virtual absl::StatusOr<v1::RevisionBook> Read(const std::string& job,
                                                const std::string& server,
                                                bool alone) const = 0;

  // Replaces the book, so that a crash leaves the one before or this one. After
  // an error it may be either.
  virtual absl::Status Write(const v1::RevisionBook& book) = 0;
};

// The file serve.revisions: a book as protobuf's text.
std::unique_ptr<RevisionStore> MakeFileRevisionStore(std::string path);

// One server's part in the agreement on changes: the book on its disk, the
// steps that it holds, and the revisions that it has opened, as
// RevisionAgreement decides. Has no thread and calls nobody. Known,
// changes, gate, knows and WatchServing are thread-safe; all else belongs to
// one thread.
class RevisionMember {
 public:
  struct Settings {
    std::string name;                // this server's, in topology.servers
    std::vector<std::string> peers;  // the other servers
    std::string decider;             // the first of topology.servers
  };

  // Reads the book, and writes it if it is missing. Errors: as RevisionStore.
  static absl::StatusOr<std::unique_ptr<RevisionMember>> Create(
      Settings settings, std::unique_ptr<RevisionStore> store,
      std::unique_ptr<RevisedJob> job);

  // Opens the revisions of the book, once the job has its builder. Errors: as
  // RevisedJob::Open.
  absl::Status Open();
  // Whether the server knows all changes that may hold.
  bool knows() const;
  // The changes that hold, as far as it knows.
  uint64_t changes() const;
  bool decides() const { return settings_.decider == settings_.name; }

  // What ranks' steps pass.
  StepGate* gate() { return &gate_; }
  RevisedJob* job() { return job_.get(); }
  v1::GetRevisionsResponse Known(uint64_t have) const;

  // Calls `on_change` with OK if the server serves ranks, or with the reason
  // why it serves none; now, and whenever that changes. A server that holds the
  // steps of a change, and serves those before, serves.
  void WatchServing(std::function<void(const absl::Status&)> on_change);

  // --- every server, when it is asked ---

  // Errors: as the call.
  absl::StatusOr<v1::AgreeResponse> Answer(const v1::AgreeRequest& request);

  // --- the server that decides ---

  // Opens the offered configuration. `own` becomes what this server answers.
  // Errors: as RevisionAgreement::Begin and RevisedJob::Open.
  absl::StatusOr<v1::ConfigRevision> Offer(const v1::ChangeRequest& request,
                                           v1::ChangeResponse* response);
  // Begins an attempt, which is under way until EndAttempt. Errors: as
  // RevisionAgreement::Begin and Write.
  absl::StatusOr<v1::ConfigRevision> Begin(const v1::ConfigRevision& wanted);
  void EndAttempt();
  // Holds the steps of the change, then writes yes.
  absl::Status Prepare(const v1::ConfigRevision& revision);
  // Writes the decision.
  absl::Status Commit(const v1::ConfigRevision& revision);
  absl::Status Abort(const v1::ConfigRevision& revision);
  // Serves what the book says from now on.
  absl::Status Apply();

  // --- a server that lacks something ---

  // Whether it waits for an answer of another server.
  bool waits() const;
  // The servers to ask what they know.
  std::vector<std::string> ToAsk() const;
  // Takes over what another server knows. Errors: as RevisionAgreement::Learn;
  // no rank must be served then.
  absl::Status Learn(const std::string& server,
                     const v1::GetRevisionsResponse& answer);
  // Ends a round of asking: `fault` is why no rank must be served.
  void EndLook(const absl::Status& fault);
  const absl::Status& fault() const { return fault_; }
  // At the server that decides, between attempts: writes the end of one that
  // could not be written when it was decided.
  void FinishLeft();

 private:
  RevisionMember(Settings settings, std::unique_ptr<RevisionStore> store,
                 std::unique_ptr<RevisedJob> job, v1::RevisionBook book);

  // Writes the book and adopts it. After an error the one before holds.
  absl::Status Write(v1::RevisionBook book);
  absl::Status KeepReached(uint64_t below);
  // Opens the revisions of the book that are not served yet.
  absl::Status OpenMissing();
  // Makes the gate hold what the book and the job say.
  void UpdateGate();
  void Close(const absl::Status& why);
  // Opens the candidate unless it is the one that was opened last.
  absl::Status OpenCandidate(const v1::ConfigRevision& revision);

  const Settings settings_;
  const std::unique_ptr<RevisionStore> store_;
  const std::unique_ptr<RevisedJob> job_;
  StepGate gate_;

  mutable Mutex book_mutex_;
  RevisionAgreement agreement_ ABSL_GUARDED_BY(book_mutex_);

  Mutex serving_mutex_;
  absl::Status serving_ ABSL_GUARDED_BY(serving_mutex_);
  std::function<void(const absl::Status&)> on_serving_
      ABSL_GUARDED_BY(serving_mutex_);

  std::unique_ptr<RevisedJob::Candidate> candidate_;
  std::set<std::string> heard_;  // while the book is not complete
  uint64_t others_reached_ = 0;
  // Without a file at its start, a server serves only when these know as much,
  // too: so no rank has begun while servers of a new job ask each other in
  // vain.
  std::set<std::string> to_know_;
  absl::Status fault_;        // why no rank is served
  absl::Status apply_fault_;  // why a change that holds is not served
  std::string said_;          // the last warning
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_REVISION_MEMBER_H_
