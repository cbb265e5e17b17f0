#include "server/service/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {
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
  return absl::OkStatus();
}

absl::Status Drained() {
  return absl::UnavailableError(
      "the server drains; meet at another server of the job");
}

}  // namespace

uint64_t Rendezvous::Join(const v1::RendezvousRequest& request, Answer answer) {
  Replies replies;
  uint64_t ticket = 0;
  {
    MutexLock lock(&mutex_);
    ticket = next_ticket_++;
    absl::Status status = Check(request);
    Group* group = status.ok() ? FindOrAdd(request) : nullptr;
    if (status.ok() && group == nullptr) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          groups_.size(), " groups are meeting, which is the most"));
    }
    if (!status.ok()) {
      replies.push_back({std::move(answer), std::move(status)});
    } else {
      if (request.rank() == 0) group->id = request.id();
      const auto before = group->waiting.find(request.rank());
      if (before != group->waiting.end()) {
        tickets_.erase(before->second.ticket);
        replies.push_back({std::move(before->second.answer),
                           absl::AbortedError(absl::StrCat(
                               "rank ", request.rank(), " of group ",
                               request.group(), " came again"))});
        group->waiting.erase(before);
      }
      group->waiting[request.rank()] = {ticket, std::move(answer)};
      tickets_[ticket] = {request.group(), request.rank()};
    }
    if (group != nullptr && !group->id.empty()) {
      for (auto& [rank, waiter] : group->waiting) {
        tickets_.erase(waiter.ticket);
        group->answered.insert(rank);
        replies.push_back({std::move(waiter.answer), group->id});
      }
      group->waiting.clear();
      if (group->answered.size() == group->size) Erase(request.group());
    }
  }
  for (Reply& reply : replies) reply.answer(std::move(reply.id));
  return ticket;
}

bool Rendezvous::Leave(uint64_t ticket) {
  Waiter left;  // freed after the lock
  MutexLock lock(&mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return false;
  const auto [name, rank] = found->second;
  tickets_.erase(found);
  Group& group = groups_.at(name);
  left = std::move(group.waiting.at(rank));
  group.waiting.erase(rank);
  if (group.waiting.empty()) Erase(name);
  return true;
}

void Rendezvous::Drain() {
  std::map<std::string, Group> groups;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    groups.swap(groups_);
    ages_.clear();
    tickets_.clear();
  }
  for (auto& [name, group] : groups) {
    for (auto& [rank, waiter] : group.waiting) waiter.answer(Drained());
  }
}

absl::Status Rendezvous::Check(const v1::RendezvousRequest& request) const {
  if (draining_) return Drained();
  absl::Status status = CheckFields(request);
  if (!status.ok()) return status;
  if (tickets_.size() >= kMaxWaiters) {
    return absl::ResourceExhaustedError(
        absl::StrCat(tickets_.size(), " ranks are waiting, which is the most"));
  }
  const auto found = groups_.find(request.group());
  if (found == groups_.end()) return absl::OkStatus();
  const Group& group = found->second;
  if (group.size != request.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", request.rank(), " says that group ", request.group(), " has ",
        request.size(), " members; others said ", group.size));
  }
  if (request.rank() == 0 && !group.id.empty() && group.id != request.id()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "rank 0 of group ", request.group(),
        " gave another id before, and not every member has been answered; "
        "does an earlier run use the same name?"));
  }
  return absl::OkStatus();
}

Rendezvous::Group* Rendezvous::FindOrAdd(const v1::RendezvousRequest& request) {
  const auto found = groups_.find(request.group());
  if (found != groups_.end()) {
    ages_.splice(ages_.end(), ages_, found->second.age);
    return &found->second;
  }
  if (groups_.size() >= kMaxGroups) {
    for (const std::string& name : ages_) {
      if (!groups_.at(name).waiting.empty()) continue;
      Erase(std::string(name));
      break;
    }
    if (groups_.size() >= kMaxGroups) return nullptr;
  }
  Group& group = groups_[request.group()];
  group.size = request.size();
  group.age = ages_.insert(ages_.end(), request.group());
  return &group;
}

void Rendezvous::Erase(const std::string& name) {
  const auto found = groups_.find(name);
  ages_.erase(found->second.age);
  groups_.erase(found);
}

}  // namespace ballast
