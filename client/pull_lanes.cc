#include "client/pull_lanes.h"

#include <random>

#include "proto/loader_service.pb.h"
#include "proto/transport.h"

namespace ballast {
namespace {

std::string RandomTicket() {
  std::random_device random;  // the system's, not a generator with a seed
  std::string ticket;
  while (ticket.size() < kLaneTicketBytes) {
    ticket.push_back(static_cast<char>(random()));
  }
  return ticket;
}

}  // namespace

PullLanes::PullLanes(uint32_t count)
    : count_(count), ticket_(count == 1 ? "" : RandomTicket()) {}

void PullLanes::Open(
    const std::vector<std::shared_ptr<PullChannel>>& channels) {
  opened_ = true;
  MutexLock lock(&mutex_);
  if (cancelled_) return;
  for (const auto& channel : channels) {
    v1::PullRequest first;
    first.mutable_join()->set_ticket(ticket_);
    first.mutable_join()->set_lane(streams_.size() + 1);
    streams_.push_back(PullStream::Open(channel.get(), first));
  }
}

absl::Status PullLanes::Read(uint32_t lane, grpc::ByteBuffer* message) {
  PullStream* stream = nullptr;
  {
    MutexLock lock(&mutex_);
    if (streams_.empty()) return absl::CancelledError("the pull was cancelled");
    stream = streams_[lane - 1].get();
  }
  return stream->Read(message);
}

void PullLanes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  for (const auto& stream : streams_) stream->Cancel();
}

}  // namespace ballast
