#include "server/serve/service/rendezvous.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/grpc_status.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "server/serve/service/peer_check.h"

namespace ballast {

// One forwarded call. Deletes itself when gRPC is done with it.
class RendezvousForwarder::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(RendezvousForwarder* forwarder, grpc::CallbackServerContext* context,
       const v1::RendezvousRequest& request)
      : forwarder_(forwarder),
        // Adopts the caller's deadline.
        context_(grpc::ClientContext::FromCallbackServerContext(*context)),
        request_(request) {
    request_.set_passed_on(forwarder_->fingerprint_);
    forwarder_->calls_->Begin();
  }

  void Start(std::shared_ptr<v1::LoaderService::Stub> stub,
             v1::RendezvousResponse* response) {
    stub_ = std::move(stub);
    stub_->async()->Rendezvous(
        context_.get(), &request_, response, [this](grpc::Status status) {
          Finish(ToGrpcStatus(forwarder_->Annotated(status)));
        });
  }
  void Cancel() { context_->TryCancel(); }

  void OnCancel() override { Cancel(); }
  void OnDone() override {
    forwarder_->Forget(this);
    forwarder_->calls_->End();
    delete this;
  }

 private:
  RendezvousForwarder* const forwarder_;
  const std::unique_ptr<grpc::ClientContext> context_;
  v1::RendezvousRequest request_;
  std::shared_ptr<v1::LoaderService::Stub> stub_;
};

RendezvousForwarder::RendezvousForwarder(std::string address,
                                         PeerSecurity security,
                                         std::string fingerprint,
                                         CallCount* calls)
    : address_(std::move(address)),
      security_(std::move(security)),
      fingerprint_(std::move(fingerprint)),
      calls_(calls) {}

RendezvousForwarder::~RendezvousForwarder() = default;

absl::StatusOr<std::shared_ptr<v1::LoaderService::Stub>>
RendezvousForwarder::GetStub() {
  const ChannelSecurity security = security_();
  if (stub_ != nullptr && security.cert == cert_) return stub_;
  BALLAST_ASSIGN_OR_RETURN(const auto channel,
                           MakePeerChannel(address_, security));
  stub_ = v1::LoaderService::NewStub(channel);
  cert_ = security.cert;
  return stub_;
}

grpc::ServerUnaryReactor* RendezvousForwarder::Open(
    grpc::CallbackServerContext* context, const v1::RendezvousRequest& request,
    v1::RendezvousResponse* response) {
  auto* call = new Call(this, context, request);
  absl::StatusOr<std::shared_ptr<v1::LoaderService::Stub>> stub =
      absl::UnavailableError(
          "the server is draining; meet through another server of the job");
  {
    MutexLock lock(&mutex_);
    if (!draining_) {
      stub = GetStub();
      if (!stub.ok()) {
        stub = Annotate(stub.status(),
                        absl::StrCat("the job's groups meet at server ",
                                     address_));
      }
    }
    open_.insert(call);
  }
  if (stub.ok()) {
    call->Start(*std::move(stub), response);
  } else {
    call->Finish(ToGrpcStatus(stub.status()));
  }
  return call;
}

void RendezvousForwarder::Drain() {
  MutexLock lock(&mutex_);
  draining_ = true;
  // No call is deleted while the lock is held, because Forget takes it.
  for (Call* call : open_) call->Cancel();
}

void RendezvousForwarder::Forget(Call* call) {
  MutexLock lock(&mutex_);
  open_.erase(call);
}

absl::Status RendezvousForwarder::Annotated(const grpc::Status& status) const {
  absl::Status result = FromGrpcStatus(status);
  // Cancelled by Drain, or by a server that shuts down: the client should
  // retry. A client that has left does not see the status.
  if (absl::IsCancelled(result)) {
    result = absl::UnavailableError("the meeting was broken off");
  }
  return Annotate(result,
                  absl::StrCat("the job's groups meet at server ", address_));
}

namespace {

absl::Status CheckFields(const v1::RendezvousRequest& request) {
  const auto wrong = [&](absl::string_view field, uint64_t found,
                         absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "RendezvousRequest.", field, " is ", found, "; wanted ", wanted));
  };
  if (request.group().empty() ||
      request.group().size() > Rendezvous::kMaxNameBytes) {
    return wrong("group's length", request.group().size(),
                 absl::StrCat("1 to ", Rendezvous::kMaxNameBytes, " bytes"));
  }
  if (request.size() == 0 || request.size() > Rendezvous::kMaxSize) {
    return wrong("size", request.size(),
                 absl::StrCat("1 to ", Rendezvous::kMaxSize));
  }
  if (request.rank() >= request.size()) {
    return wrong("rank", request.rank(),
                 absl::StrCat("less than the size, ", request.size()));
  }
  if (request.rank() != 0 && !request.id().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("RendezvousRequest.id was given by rank ", request.rank(),
                     "; only rank 0 gives one"));
  }
  if (request.rank() == 0 &&
      (request.id().empty() || request.id().size() > Rendezvous::kMaxIdBytes)) {
    return wrong(
        "id's length", request.id().size(),
        absl::StrCat("1 to ", Rendezvous::kMaxIdBytes, " bytes from rank 0"));
  }
  if (request.run().size() > Rendezvous::kMaxNameBytes) {
    return wrong("run's length", request.run().size(),
                 absl::StrCat("at most ", Rendezvous::kMaxNameBytes, " bytes"));
  }
  if (request.member().size() > Rendezvous::kMaxMemberBytes) {
    return wrong(
        "member's length", request.member().size(),
        absl::StrCat("at most ", Rendezvous::kMaxMemberBytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status Drained() {
  return absl::UnavailableError(
      "the server is draining; meet through another server of the job");
}

// The run of a rendezvous whose ranks named none. Derived from the id, which no
// other rendezvous has, so that it is the same wherever it is derived.
std::string GetRun(const std::string& id) {
  return Sha256Hex(absl::MakeSpan(reinterpret_cast<const uint8_t*>(id.data()),
                                  id.size()))
      .substr(0, 32);
}

}  // namespace

uint64_t Rendezvous::Join(const v1::RendezvousRequest& request, Answer answer) {
  Replies replies;
  uint64_t ticket = 0;
  {
    MutexLock lock(&mutex_);
    ticket = next_ticket_++;
    absl::Status status = Check(request);
    const v1::RendezvousResponse* answered =
        status.ok() ? FindAnswered(request) : nullptr;
    if (!status.ok()) {
      replies.push_back({std::move(answer), std::move(status)});
    } else if (answered != nullptr) {
      replies.push_back({std::move(answer), *answered});
    } else {
      const Key key(request.group(), request.run());
      Group& group = groups_[key];
      group.size = request.size();
      Waiter& waiter = group.waiting[request.rank()];
      if (waiter.ticket != 0) {
        tickets_.erase(waiter.ticket);
        replies.push_back({std::move(waiter.answer),
                           absl::AbortedError(absl::StrCat(
                               "rank ", request.rank(), " of group ",
                               request.group(), " came again"))});
      }
      waiter = {ticket, request.member(), request.id(), std::move(answer)};
      tickets_[ticket] = {key, request.rank()};
      if (group.waiting.size() == group.size) Meet(key, &replies);
    }
  }
  for (Reply& reply : replies) reply.answer(std::move(reply.response));
  return ticket;
}

v1::RendezvousResponse Rendezvous::WhoWaits(
    const v1::RendezvousRequest& request) const {
  v1::RendezvousResponse response;
  MutexLock lock(&mutex_);
  const auto found = groups_.find({request.group(), request.run()});
  if (found == groups_.end()) return response;
  const Group& group = found->second;
  response.set_waiting(group.waiting.size());
  uint32_t next = 0;
  const auto add_until = [&](uint32_t rank) {
    while (next < rank && response.missing_size() < kMaxMissing) {
      response.add_missing(next++);
    }
    next = rank + 1;
    return response.missing_size() < kMaxMissing;
  };
  for (const auto& [rank, waiter] : group.waiting) {
    if (!add_until(rank)) return response;
  }
  add_until(group.size);
  return response;
}

void Rendezvous::Meet(const Key& key, Replies* replies) {
  const auto found = groups_.find(key);
  Group group = std::move(found->second);
  groups_.erase(found);
  Met met;
  met.key = key;
  met.response.set_id(group.waiting.at(0).id);
  met.response.set_run(key.second.empty() ? GetRun(met.response.id())
                                          : key.second);
  for (auto& [rank, waiter] : group.waiting) {
    tickets_.erase(waiter.ticket);
    met.members.push_back(std::move(waiter.member));
    replies->push_back({std::move(waiter.answer), met.response});
  }
  Keep(std::move(met));
}

void Rendezvous::Keep(Met met) {
  if (const auto before = met_by_key_.find(met.key);
      before != met_by_key_.end()) {
    Forget(before->second);
  }
  met_members_ += met.members.size();
  const Key key = met.key;
  met_by_key_[key] = met_.insert(met_.end(), std::move(met));
  while (met_.size() > kMaxMet || met_members_ > kMaxMetMembers) {
    Forget(met_.begin());
  }
}

void Rendezvous::Forget(std::list<Met>::iterator met) {
  met_members_ -= met->members.size();
  met_by_key_.erase(met->key);
  met_.erase(met);
}

const v1::RendezvousResponse* Rendezvous::FindAnswered(
    const v1::RendezvousRequest& request) const {
  if (request.member().empty()) return nullptr;
  const auto found = met_by_key_.find({request.group(), request.run()});
  if (found == met_by_key_.end()) return nullptr;
  const Met& met = *found->second;
  if (request.size() != met.members.size() ||
      met.members[request.rank()] != request.member()) {
    return nullptr;
  }
  return &met.response;
}

bool Rendezvous::Leave(uint64_t ticket) {
  Waiter left;  // freed after the lock
  MutexLock lock(&mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return false;
  const auto [key, rank] = found->second;
  tickets_.erase(found);
  Group& group = groups_.at(key);
  left = std::move(group.waiting.at(rank));
  group.waiting.erase(rank);
  if (group.waiting.empty()) groups_.erase(key);
  return true;
}

void Rendezvous::Drain() {
  std::map<Key, Group> groups;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    groups.swap(groups_);
    tickets_.clear();
  }
  for (auto& [key, group] : groups) {
    for (auto& [rank, waiter] : group.waiting) waiter.answer(Drained());
  }
}

absl::Status Rendezvous::Check(const v1::RendezvousRequest& request) const {
  if (draining_) return Drained();
  absl::Status status = CheckFields(request);
  if (!status.ok()) return status;
  if (tickets_.size() >= kMaxWaiters) {
    return absl::ResourceExhaustedError(absl::StrCat(
        tickets_.size(), " ranks are waiting, the most that a server allows"));
  }
  const auto found = groups_.find({request.group(), request.run()});
  if (found == groups_.end()) {
    if (groups_.size() < kMaxGroups) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        groups_.size(), " groups are meeting, the most that a server allows"));
  }
  const Group& group = found->second;
  if (group.size == request.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", request.rank(), " says that group ", request.group(), " has ",
      request.size(), " members; ", group.waiting.size(), " waiting ranks say ",
      group.size,
      ". Do ranks of an earlier start still wait? Give each start of the job "
      "its own run"));
}

}  // namespace ballast
