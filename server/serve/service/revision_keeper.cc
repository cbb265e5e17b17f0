#include "server/serve/service/revision_keeper.h"

#include <grpcpp/grpcpp.h>
#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/serve/service/peer_check.h"

namespace ballast {

namespace {

// All changes of a job with their texts.
constexpr int kMaxAnswerBytes = 80 << 20;
// Servers that are asked at the same time.
constexpr size_t kAskedAtOnce = 16;

class GrpcRevisionPeers final : public RevisionPeers {
 public:
  explicit GrpcRevisionPeers(PeerSecurity security)
      : security_(std::move(security)) {}

  absl::StatusOr<v1::GetRevisionsResponse> GetRevisions(
      const std::string& address, const v1::GetRevisionsRequest& request,
      absl::Duration patience) override {
    return Call<v1::GetRevisionsResponse>(
        address, patience,
        [&](v1::RevisionService::Stub* stub, auto* context, auto* response) {
          return stub->GetRevisions(context, request, response);
        });
  }
  absl::StatusOr<v1::AgreeResponse> Agree(const std::string& address,
                                          const v1::AgreeRequest& request,
                                          absl::Duration patience) override {
    return Call<v1::AgreeResponse>(
        address, patience,
        [&](v1::RevisionService::Stub* stub, auto* context, auto* response) {
          return stub->Agree(context, request, response);
        });
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : open_) context->TryCancel();
  }

 private:
  template <typename Response, typename Method>
  absl::StatusOr<Response> Call(const std::string& address,
                                absl::Duration patience, const Method& method) {
    BALLAST_ASSIGN_OR_RETURN(
        const auto channel,
        MakePeerChannel(address, security_(), kMaxAnswerBytes));
    const auto stub = v1::RevisionService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(patience));
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("the server drains");
      open_.insert(&context);
    }
    Response response;
    const grpc::Status status = method(stub.get(), &context, &response);
    {
      MutexLock lock(&mutex_);
      open_.erase(&context);
    }
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  const PeerSecurity security_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status AskAll(
    RevisionPeers* peers, const std::vector<std::string>& addresses,
    const v1::AgreeRequest& request, absl::Duration patience,
    const std::function<absl::Status(const std::string& address,
                                     const v1::AgreeResponse& answer)>& each) {
  std::vector<absl::Status> results(addresses.size());
  Mutex mutex;
  const auto ask = [&](size_t i) {
    const std::string& address = addresses[i];
    const auto answer = peers->Agree(address, request, patience);
    MutexLock lock(&mutex);
    results[i] =
        Annotate(answer.ok() ? each(address, *answer) : answer.status(),
                 absl::StrCat("server ", address));
    return absl::OkStatus();  // whatever one says, the others are asked
  };
  BALLAST_RETURN_IF_ERROR(RunAll(results.size(), kAskedAtOnce, ask));
  for (const absl::Status& result : results) {
    BALLAST_RETURN_IF_ERROR(result);
  }
  return absl::OkStatus();
}

std::unique_ptr<RevisionPeers> MakeGrpcRevisionPeers(PeerSecurity security) {
  return std::make_unique<GrpcRevisionPeers>(std::move(security));
}

namespace {

// Opening the sources of a change; answering to it; being told the decision, or
// asked what a server knows.
constexpr absl::Duration kCheckTime = absl::Seconds(60);
constexpr absl::Duration kPrepareTime = absl::Seconds(10);
constexpr absl::Duration kTellTime = absl::Seconds(2);
// Between two looks at the others: while this server waits for something, and
// otherwise.
constexpr absl::Duration kWaiting = absl::Seconds(1);
constexpr absl::Duration kQuiet = absl::Seconds(30);
// Longest text of a file (kMaxFileBytes in server/config/config_loader.cc).
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

absl::Status Stopping() {
  return absl::UnavailableError("the server is draining");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RevisionKeeper>> RevisionKeeper::Create(
    Settings settings, std::unique_ptr<RevisionPeers> calls,
    std::unique_ptr<RevisionStore> store, std::unique_ptr<RevisedJob> job) {
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<RevisionMember> member,
      RevisionMember::Create(settings, std::move(store), std::move(job)));
  return std::unique_ptr<RevisionKeeper>(new RevisionKeeper(
      std::move(settings), std::move(calls), std::move(member)));
}

absl::Status RevisionKeeper::Start(Clock* clock) {
  gate()->Begin();
  clock_ = clock;
  BALLAST_ASSIGN_OR_RETURN(thread_,
                           StartThread("agree on changes", [this] { Run(); }));
  const auto look = [this] {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(look_waits_, true)) return;
    }
    AddTask([this](const absl::Status& refused) {
      {
        MutexLock lock(&mutex_);
        look_waits_ = false;
      }
      if (refused.ok()) Look();
    });
  };
  look();
  BALLAST_ASSIGN_OR_RETURN(
      ticker_, Ticker::Start(
                   "look for changes", [] { return kWaiting; }, look, clock));
  return absl::OkStatus();
}

void RevisionKeeper::Stop() {
  calls_->Cancel();
  ticker_.reset();
  std::deque<Task> left;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    left.swap(tasks_);
  }
  changed_.NotifyAll();
  for (const Task& task : left) task(Stopping());
  if (thread_.joinable()) thread_.join();
}

void RevisionKeeper::AddTask(Task task) {
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      refused = Stopping();
    } else if (tasks_.size() >= kMaxWaiting) {
      refused = absl::ResourceExhaustedError(absl::StrCat(
          kMaxWaiting, " calls about changes are waiting; try again"));
    } else {
      tasks_.push_back(std::move(task));
    }
  }
  if (refused.ok()) {
    changed_.NotifyAll();
  } else {
    task(refused);
  }
}

void RevisionKeeper::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(absl::OkStatus());
  }
}

void RevisionKeeper::Change(const v1::ChangeRequest& request,
                            Answer<v1::ChangeResponse> answer) {
  AddTask(
      [this, request, answer = std::move(answer)](const absl::Status& refused) {
        if (!refused.ok()) return answer(refused);
        answer(MakeChange(request));
      });
}

void RevisionKeeper::Agree(const v1::AgreeRequest& request,
                           Answer<v1::AgreeResponse> answer) {
  AddTask(
      [this, request, answer = std::move(answer)](const absl::Status& refused) {
        if (!refused.ok()) return answer(refused);
        answer(member_->Answer(request));
      });
}

namespace {

// An error before the decision. UNAVAILABLE is for what may have been decided.
absl::Status NothingChanged(const absl::Status& status) {
  const bool passes = absl::IsUnavailable(status) ||
                      absl::IsDeadlineExceeded(status) ||
                      absl::IsCancelled(status);
  return passes ? absl::FailedPreconditionError(status.message()) : status;
}

}  // namespace

absl::StatusOr<v1::ChangeResponse> RevisionKeeper::CheckChange(
    const v1::ChangeRequest& request, v1::ConfigRevision* wanted) {
  if (!member_->decides()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", settings_.name,
        " does not decide; offer the change to server ", settings_.decider));
  }
  if (!settings_.servers_known) {
    return absl::FailedPreconditionError(
        "topology.servers does not name all servers of the job "
        "(topology.meeting), so nobody could ask them");
  }
  if (request.config().size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the configuration has ", request.config().size(),
                     " bytes, wanted at most ", kMaxConfigBytes));
  }
  v1::ChangeResponse response;
  BALLAST_ASSIGN_OR_RETURN(*wanted, member_->Offer(request, &response));
  v1::AgreeRequest check;
  check.set_phase(v1::AgreeRequest::PHASE_CHECK);
  check.set_job(job()->fingerprint());
  *check.mutable_revision() = *wanted;
  BALLAST_RETURN_IF_ERROR(AskAll(
      calls_.get(), settings_.peers, check, kCheckTime,
      [&](const std::string& server,
          const v1::AgreeResponse& answer) -> absl::Status {
        v1::ChangeResponse::Server* const asked = response.add_servers();
        asked->set_address(server);
        asked->set_earliest_step(answer.earliest_step());
        *asked->mutable_notes() = answer.notes();
        if (answer.fingerprint() == wanted->fingerprint()) {
          return absl::OkStatus();
        }
        return absl::FailedPreconditionError(absl::StrCat(
            "the change has fingerprint ", answer.fingerprint(), " there and ",
            wanted->fingerprint(), " at server ", settings_.name,
            ": their files (data, index, recipe, tokenizer) or releases "
            "differ"));
      }));
  std::sort(
      response.mutable_servers()->pointer_begin() + 1,
      response.mutable_servers()->pointer_end(),
      [](const auto* a, const auto* b) { return a->address() < b->address(); });
  *response.mutable_revision() = *wanted;
  response.mutable_revision()->clear_config();
  response.mutable_revision()->set_number(0);
  return response;
}

absl::Status RevisionKeeper::TellAll(v1::AgreeRequest::Phase phase,
                                     const v1::ConfigRevision& revision,
                                     absl::Duration patience) {
  v1::AgreeRequest request;
  request.set_phase(phase);
  request.set_job(job()->fingerprint());
  *request.mutable_revision() = revision;
  return AskAll(calls_.get(), settings_.peers, request, patience,
                [](const std::string&, const v1::AgreeResponse&) {
                  return absl::OkStatus();
                });
}

absl::StatusOr<v1::ChangeResponse> RevisionKeeper::MakeChange(
    const v1::ChangeRequest& request) {
  v1::ConfigRevision wanted;
  absl::StatusOr<v1::ChangeResponse> checked = CheckChange(request, &wanted);
  if (!checked.ok()) return NothingChanged(checked.status());
  if (request.dry_run()) return checked;
  v1::ChangeResponse response = *std::move(checked);
  const absl::StatusOr<v1::ConfigRevision> begun = member_->Begin(wanted);
  if (!begun.ok()) return NothingChanged(begun.status());
  const v1::ConfigRevision& attempt = *begun;
  absl::Status agreed = member_->Prepare(attempt);
  if (agreed.ok()) {
    agreed = TellAll(v1::AgreeRequest::PHASE_PREPARE, attempt, kPrepareTime);
  }
  if (!agreed.ok()) {
    const absl::Status aborted = member_->Abort(attempt);
    member_->EndAttempt();
    if (!aborted.ok()) LogWarning(aborted.message());
    TellAll(v1::AgreeRequest::PHASE_ABORT, attempt, kTellTime)
        .IgnoreError();  // they ask
    LogWarning(Describe(attempt), " is refused: ", agreed.message());
    return NothingChanged(agreed);
  }
  // The decision: the change holds once this is on the disk.
  const absl::Status decided = member_->Commit(attempt);
  if (!decided.ok()) {
    LogError(Describe(attempt),
             " is not written yet, and all servers wait before its first step; "
             "the next attempt follows in a second: ",
             decided.message());
    return absl::UnavailableError(absl::StrCat(
        "the decision could not be written, and all servers wait before step ",
        attempt.first_step(), ": ", decided.message(), ". Server ",
        settings_.name,
        " tries again every second, until its disk is well or it is restarted; "
        "`ballastctl status` shows the change once it holds"));
  }
  member_->EndAttempt();
  const absl::Status applied = member_->Apply();
  const absl::Status told =
      TellAll(v1::AgreeRequest::PHASE_COMMIT, attempt, kTellTime);
  if (!told.ok()) {
    LogWarning(Describe(attempt),
               " holds; it asks for it when it can: ", told.message());
  }
  BALLAST_RETURN_IF_ERROR(applied);
  *response.mutable_revision() = attempt;
  response.mutable_revision()->clear_config();
  return response;
}

void RevisionKeeper::Look() {
  const absl::Time now = clock_->Now();
  if (now - last_look_ < (member_->waits() ? kWaiting / 2 : kQuiet)) return;
  last_look_ = now;
  member_->FinishLeft();
  // What a server that does not answer now has said stays.
  absl::Status fault = member_->fault();
  bool answered = false;
  for (const std::string& peer : member_->ToAsk()) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
    }
    v1::GetRevisionsRequest request;
    request.set_have(member_->changes());
    absl::StatusOr<v1::GetRevisionsResponse> answer =
        calls_->GetRevisions(peer, request, kTellTime);
    if (!answer.ok()) continue;
    answer->set_server(peer);
    const absl::Status learnt = member_->Learn(peer, *answer);
    if (!std::exchange(answered, true) || fault.ok()) fault = learnt;
  }
  member_->EndLook(fault);
}

namespace {

template <typename Response>
auto FinishWith(grpc::ServerUnaryReactor* reactor, Response* response) {
  return [reactor, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(ToGrpcStatus(answer.status()));
  };
}

}  // namespace

absl::Status RevisionServiceImpl::CheckKeeps() const {
  if (keeper_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("server ", name_,
                   " has no serve.revisions, so it would forget a change; "
                   "give every server of the job the key at its next start"));
}

grpc::ServerUnaryReactor* RevisionServiceImpl::GetRevisions(
    grpc::CallbackServerContext* context,
    const v1::GetRevisionsRequest* request,
    v1::GetRevisionsResponse* response) {
  if (keeper_ != nullptr) {
    *response = keeper_->Known(request->have());
  } else {
    response->set_server(name_);
    response->set_decider(decider_);
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* RevisionServiceImpl::Change(
    grpc::CallbackServerContext* context, const v1::ChangeRequest* request,
    v1::ChangeResponse* response) {
  if (const absl::Status keeps = CheckKeeps(); !keeps.ok()) {
    return Finished(context, keeps);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  keeper_->Change(*request, FinishWith(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* RevisionServiceImpl::Agree(
    grpc::CallbackServerContext* context, const v1::AgreeRequest* request,
    v1::AgreeResponse* response) {
  if (const absl::Status keeps = CheckKeeps(); !keeps.ok()) {
    return Finished(context, keeps);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  keeper_->Agree(*request, FinishWith(reactor, response));
  return reactor;
}

}  // namespace ballast
