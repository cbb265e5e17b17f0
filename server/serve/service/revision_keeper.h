#ifndef BALLAST_SERVER_SERVE_SERVICE_REVISION_KEEPER_H_
#define BALLAST_SERVER_SERVE_SERVICE_REVISION_KEEPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/channel_security.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/revision_service.grpc.pb.h"
#include "proto/revision_service.pb.h"
#include "server/delivery/step_gate.h"
#include "server/serve/service/revision_member.h"

namespace ballast {

// Interface to the RevisionService of the job's other servers. Thread-safe.
class RevisionPeers {
 public:
  virtual ~RevisionPeers() = default;
  // Both block for `patience` at most. Errors: as the call.
  virtual absl::StatusOr<v1::GetRevisionsResponse> GetRevisions(
      const std::string& address, const v1::GetRevisionsRequest& request,
      absl::Duration patience) = 0;
  virtual absl::StatusOr<v1::AgreeResponse> Agree(
      const std::string& address, const v1::AgreeRequest& request,
      absl::Duration patience) = 0;
  // Ends the calls in progress, and every later one, with CANCELLED.
  virtual void Cancel() = 0;
};

// Asks all of `addresses` at once, and calls `each` with every answer, one at a
// time. Blocks for `patience` for every 16 of them at most. Returns the first
// error, of a call or of `each`, in the order of `addresses`, with the address.
absl::Status AskAll(
    RevisionPeers* peers, const std::vector<std::string>& addresses,
    const v1::AgreeRequest& request, absl::Duration patience,
    const std::function<absl::Status(const std::string& address,
                                     const v1::AgreeResponse& answer)>& each);

// Makes calls over gRPC, secured by `security`.
std::unique_ptr<RevisionPeers> MakeGrpcRevisionPeers(PeerSecurity security);

// Keeps and changes the revisions of the job at one server: the calls and the
// thread around RevisionMember. Thread-safe.
class RevisionKeeper {
 public:
  struct Settings : RevisionMember::Settings {
    bool servers_known = true;  // topology.servers names all of them
  };

  // Errors: as RevisionMember::Create.
  static absl::StatusOr<std::unique_ptr<RevisionKeeper>> Create(
      Settings settings, std::unique_ptr<RevisionPeers> calls,
      std::unique_ptr<RevisionStore> store, std::unique_ptr<RevisedJob> job);
  ~RevisionKeeper() { Stop(); }

  // Opens the revisions of the file, once the job has its builder. Errors: as
  // RevisedJob::Open.
  absl::Status Open() { return member_->Open(); }
  // Whether the server knows all changes that may hold. Until then it serves no
  // rank.
  bool complete() const { return member_->knows(); }
  // As RevisionMember::WatchServing.
  void WatchServing(std::function<void(const absl::Status&)> on_change) {
    member_->WatchServing(std::move(on_change));
  }

  // Begins to answer and to ask. `clock` is not owned. Errors:
  // RESOURCE_EXHAUSTED (no thread).
  absl::Status Start(Clock* clock);
  // Ends the thread; calls that wait for it end with UNAVAILABLE.
  void Stop();

  // What ranks' steps pass. Until Start it is open, for a server's rehearsal.
  StepGate* gate() { return member_->gate(); }
  RevisedJob* job() { return member_->job(); }

  // Answers at once. `have` as in the request.
  v1::GetRevisionsResponse Known(uint64_t have) const {
    return member_->Known(have);
  }

  // Change and Agree: the thread calls `answer`, one call after the other. At
  // most kMaxWaiting wait. `answer` may run before this returns.
  static constexpr size_t kMaxWaiting = 16;
  template <typename Response>
  using Answer = std::function<void(absl::StatusOr<Response>)>;
  void Change(const v1::ChangeRequest& request,
              Answer<v1::ChangeResponse> answer);
  void Agree(const v1::AgreeRequest& request, Answer<v1::AgreeResponse> answer);

 private:
  RevisionKeeper(Settings settings, std::unique_ptr<RevisionPeers> calls,
                 std::unique_ptr<RevisionMember> member)
      : settings_(std::move(settings)),
        calls_(std::move(calls)),
        member_(std::move(member)) {}

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
  // Asks all other servers; they find out by themselves what they do not hear.
  absl::Status TellAll(v1::AgreeRequest::Phase phase,
                       const v1::ConfigRevision& revision,
                       absl::Duration patience);
  // Learns from the others what this server lacks.
  void Look();

  const Settings settings_;
  const std::unique_ptr<RevisionPeers> calls_;
  const std::unique_ptr<RevisionMember> member_;
  absl::Time last_look_ = absl::InfinitePast();  // of the thread alone

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool look_waits_ ABSL_GUARDED_BY(mutex_) = false;  // among tasks_
  Clock* clock_ = nullptr;
  std::unique_ptr<Ticker> ticker_;
  std::thread thread_;
};

// Implements proto/revision_service.proto. `keeper` is null in a server without
// serve.revisions. Must outlive the gRPC server.
class RevisionServiceImpl final : public v1::RevisionService::CallbackService {
 public:
  RevisionServiceImpl(std::string name, std::string decider,
                      RevisionKeeper* keeper)
      : name_(std::move(name)), decider_(std::move(decider)), keeper_(keeper) {}

  grpc::ServerUnaryReactor* GetRevisions(
      grpc::CallbackServerContext* context,
      const v1::GetRevisionsRequest* request,
      v1::GetRevisionsResponse* response) override;
  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context,
                                   const v1::ChangeRequest* request,
                                   v1::ChangeResponse* response) override;
  grpc::ServerUnaryReactor* Agree(grpc::CallbackServerContext* context,
                                  const v1::AgreeRequest* request,
                                  v1::AgreeResponse* response) override;

 private:
  absl::Status CheckKeeps() const;

  const std::string name_;
  const std::string decider_;
  RevisionKeeper* const keeper_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_REVISION_KEEPER_H_
