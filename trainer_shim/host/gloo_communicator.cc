#include "trainer_shim/host/gloo_communicator.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "trainer_shim/host/gloo_link.h"
#include "trainer_shim/host/peer_address.h"

namespace ballast {
namespace {

// Bound of each wait once all ranks have met for the first time.
constexpr absl::Duration kConnecting = absl::Minutes(1);

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(std::unique_ptr<GlooLink> link, uint64_t run, uint32_t rank,
                   uint32_t size, absl::Duration timeout)
      : link_(std::move(link)),
        run_(run),
        rank_(rank),
        size_(size),
        timeout_(timeout) {}

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  bool on_device() const override { return false; }

  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle) override {
    return Exchange(sends, receives, timeout_);
  }

  absl::Status Exchange(absl::Span<const SendSlice> sends,
                        absl::Span<const ReceiveSlice> receives,
                        absl::Duration timeout) {
    BALLAST_RETURN_IF_ERROR(end());
    absl::Status moved = CheckPeers("sends to", sends);
    if (moved.ok()) moved = CheckPeers("receives from", receives);
    if (moved.ok() && size_ > 1) {
      moved = link_->Exchange(
          HeadersOf(run_, exchanges_++, rank_, size_, sends, receives), sends,
          receives, timeout);
    }
    if (moved.ok()) return moved;
    Abort(moved);
    return end();
  }

  // Every error shows in the call itself.
  absl::Status Check() override { return end(); }

  void Abort(const absl::Status& reason) override {
    {
      MutexLock lock(&mutex_);
      if (!end_.ok()) return;
      end_ = reason;
    }
    link_->Close();
  }

 private:
  absl::Status end() const {
    MutexLock lock(&mutex_);
    return end_;
  }

  template <typename Slice>
  absl::Status CheckPeers(absl::string_view verb,
                          absl::Span<const Slice> slices) const {
    for (const Slice& slice : slices) {
      if (slice.peer < size_ && slice.peer != rank_) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank_, " ", verb, " rank ", slice.peer,
                       ", wanted another rank below ", size_));
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<GlooLink> link_;
  const uint64_t run_;
  const uint32_t rank_;
  const uint32_t size_;
  const absl::Duration timeout_;
  uint64_t exchanges_ = 0;
  mutable Mutex mutex_;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // final once not OK
};

// Learns the ports of all ranks. Rendezvous carries the bytes of one rank, so
// the group meets once for each, with that rank in the first place. The first
// meeting also carries the number that rank 0 drew for the group; it is part of
// the later meetings' names, so that ranks of another start take no part.
absl::StatusOr<std::vector<PeerPorts>> SharePorts(LoaderClient* server,
                                                  const std::string& group,
                                                  uint32_t rank, uint32_t size,
                                                  absl::Duration timeout,
                                                  const std::string& run,
                                                  PeerPorts own) {
  std::vector<PeerPorts> all;
  if (rank == 0) {
    std::random_device random;  // the system's, not a generator with a seed
    own.run = uint64_t{random()} << 32 | random();
  }
  for (uint32_t giver = 0; giver < size; ++giver) {
    if (giver > 0) own.run = all[0].run;
    std::string id;
    if (giver == rank) {
      BALLAST_ASSIGN_OR_RETURN(id, own.Encode());
    }
    BALLAST_ASSIGN_OR_RETURN(
        id, server->Rendezvous(
                giver == 0 ? group
                           : absl::StrCat(group, "/ports/", giver, "/",
                                          absl::Hex(own.run)),
                (rank + size - giver) % size, size, id,
                giver == 0 ? timeout : std::min(timeout, kConnecting), run));
    BALLAST_ASSIGN_OR_RETURN(PeerPorts ports, PeerPorts::Decode(id, size));
    if (giver > 0 && ports.run != own.run) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", giver, " of group ", group,
                       " is of another start of the job; start all ranks "
                       "again"));
    }
    all.push_back(std::move(ports));
  }
  return all;
}

}  // namespace

GlooOptions GlooOptions::For(const FailoverOptions& failover,
                             std::string address) {
  GlooOptions options;
  options.address = std::move(address);
  options.exchange_timeout = 2 * failover.patience;
  options.silent_after = std::max(failover.silent_after, absl::Seconds(2));
  return options;
}

absl::StatusOr<std::unique_ptr<Communicator>> MeetGlooCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const GlooOptions& options,
    const std::string& run) {
  if (rank >= size || size > PeerPorts::kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of a group of ", size,
                     " over Gloo, wanted a rank below the size and a size up "
                     "to ",
                     PeerPorts::kMaxRanks));
  }
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<GlooLink> link,
                           GlooLink::Listen(options.address, rank, size,
                                            kConnecting, options.silent_after));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<PeerPorts> ports,
      SharePorts(server, group, rank, size, timeout, run, link->ports()));
  BALLAST_RETURN_IF_ERROR(link->Connect(ports));
  auto end = std::make_unique<GlooCommunicator>(
      std::move(link), ports[0].run, rank, size, options.exchange_timeout);
  // Nothing moves: every peer proves that it is of this run.
  BALLAST_RETURN_IF_ERROR(end->Exchange({}, {}, kConnecting));
  return end;
}

}  // namespace ballast
