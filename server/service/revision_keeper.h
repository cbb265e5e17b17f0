#ifndef BALLAST_SERVER_SERVICE_REVISION_KEEPER_H_
#define BALLAST_SERVER_SERVICE_REVISION_KEEPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/revision_service.pb.h"
#include "server/delivery/step_gate.h"
#include "server/service/revised_job.h"
#include "server/service/revision_agreement.h"
#include "server/service/revision_peers.h"

namespace ballast {

// Keeps and changes the revisions of the job at one server: the disk, the calls
// and the thread around RevisionAgreement, which decides. Thread-safe.
class RevisionKeeper {
 public:
  struct Settings {
    std::string path;                // serve.revisions
    std::string name;                // this server's, in topology.servers
    std::vector<std::string> peers;  // the other servers
    std::string decider;             // the first of topology.servers
    bool servers_known = true;       // topology.servers names all of them
  };

  // Reads the file, and writes it if it is missing. Errors: as ReadRevisions
  // and WriteRevisions.
  static absl::StatusOr<std::unique_ptr<RevisionKeeper>> Create(
      Settings settings, std::unique_ptr<RevisionPeers> peers,
      std::unique_ptr<RevisedJob> job);
  ~RevisionKeeper() { Stop(); }

  // Opens the revisions of the file, once the job has its builder. Errors: as
  // RevisedJob::Open.
  absl::Status Open();
  // Whether the server knows all changes that may hold. Until then it serves no
  // rank.
  bool complete() const;

  // Begins to answer and to ask. `clock` is not owned. Errors:
  // RESOURCE_EXHAUSTED (no thread).
  absl::Status Start(Clock* clock);
  // Ends the thread; calls that wait for it end with UNAVAILABLE.
  void Stop();

  // What ranks' steps pass. Until Start it is open, for a server's rehearsal.
  StepGate* gate() { return &gate_; }
  RevisedJob* job() { return job_.get(); }

  // Answers at once. `have` as in the request.
  v1::GetRevisionsResponse Known(uint64_t have) const;

  // Change and Agree: the thread calls `answer`, one call after the other. At
  // most kMaxWaiting wait. `answer` may run before this returns.
  static constexpr size_t kMaxWaiting = 16;
  template <typename Response>
  using Answer = std::function<void(absl::StatusOr<Response>)>;
  void Change(const v1::ChangeRequest& request,
              Answer<v1::ChangeResponse> answer);
  void Agree(const v1::AgreeRequest& request, Answer<v1::AgreeResponse> answer);

 private:
  RevisionKeeper(Settings settings, std::unique_ptr<RevisionPeers> peers,
                 std::unique_ptr<RevisedJob> job, v1::RevisionBook book);

  bool decides() const { return settings_.decider == settings_.name; }
  // Calls `task` from the thread, or at once with the reason why it is not run.
  using Task = std::function<void(const absl::Status& refused)>;
  void AddTask(Task task);
  void Run();

  // All below run in the thread, or before it starts.
  absl::StatusOr<v1::ChangeResponse> MakeChange(
      const v1::ChangeRequest& request);
  // Until the decision: `wanted` becomes what all servers can serve.
  absl::StatusOr<v1::ChangeResponse> CheckChange(
      const v1::ChangeRequest& request, v1::ConfigRevision* wanted);
  absl::StatusOr<v1::AgreeResponse> MakeAgree(const v1::AgreeRequest& request);
  // Writes the book and adopts it. After an error the one before holds.
  absl::Status Write(v1::RevisionBook book);
  absl::Status KeepReached(uint64_t below);
  // Opens the revisions of the book that are not served yet.
  absl::Status ApplyBook();
  // Makes the gate hold what the book and the job say.
  void UpdateGate();
  // Opens the candidate unless it is the one that was opened last.
  absl::Status OpenCandidate(const v1::ConfigRevision& revision);
  // Prepares this server: holds, then writes.
  absl::Status Prepare(const v1::ConfigRevision& revision);
  absl::Status Commit(const v1::ConfigRevision& revision);
  absl::Status Abort(const v1::ConfigRevision& revision);
  // Asks all other servers at once; `each` gets every answer, one at a time.
  // OK, or the first server's error, by name.
  absl::Status AskAll(
      v1::AgreeRequest::Phase phase, const v1::ConfigRevision& revision,
      absl::Duration patience,
      const std::function<absl::Status(const std::string& server,
                                       const v1::AgreeResponse& answer)>& each);
  // Learns from the others what this server lacks.
  void Look();
  // nullopt: it does not answer.
  std::optional<absl::Status> LearnFrom(const std::string& server);
  absl::Status Learn(const std::string& server,
                     v1::GetRevisionsResponse answer);

  const Settings settings_;
  const std::unique_ptr<RevisionPeers> peers_;
  const std::unique_ptr<RevisedJob> job_;
  StepGate gate_;

  mutable Mutex book_mutex_;
  RevisionAgreement agreement_ ABSL_GUARDED_BY(book_mutex_);

  // Of the thread alone.
  std::optional<RevisedJob::Candidate> candidate_;
  std::set<std::string> heard_;  // while the book is not complete
  uint64_t others_reached_ = 0;
  // Without a file at its start, a server serves only when these know as much,
  // too: so no rank has begun while servers of a new job tell each other that
  // there is nothing to tell.
  std::set<std::string> to_know_;
  absl::Status fault_;        // why no rank is served
  absl::Status apply_fault_;  // why a change that holds is not served
  std::string said_;          // the last warning
  absl::Time last_look_ = absl::InfinitePast();

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool look_waits_ ABSL_GUARDED_BY(mutex_) = false;  // among tasks_
  Clock* clock_ = nullptr;
  std::unique_ptr<Ticker> ticker_;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISION_KEEPER_H_
