#include "trainer_shim/host/in_process_communicator.h"

#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

using Sends = std::vector<absl::Span<const SendSlice>>;  // of each rank

absl::Status CheckPeer(uint32_t rank, absl::string_view verb, uint32_t peer,
                       uint32_t size) {
  if (peer < size && peer != rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank, " ", verb, " rank ", peer,
                   ", wanted another rank below ", size));
}

// Fills `receives` of `rank` from all ranks' sends, after a check that the two
// fit.
absl::Status CopySlices(uint32_t rank, const Sends& sends,
                        absl::Span<const ReceiveSlice> receives) {
  const uint32_t size = sends.size();
  std::vector<size_t> next(size, 0);  // into each peer's sends
  const auto next_for_me = [&](uint32_t peer) -> const SendSlice* {
    while (next[peer] < sends[peer].size()) {
      const SendSlice& slice = sends[peer][next[peer]++];
      if (slice.peer == rank) return &slice;
    }
    return nullptr;
  };
  for (const SendSlice& slice : sends[rank]) {
    BALLAST_RETURN_IF_ERROR(CheckPeer(rank, "sends to", slice.peer, size));
  }
  for (const ReceiveSlice& slice : receives) {
    BALLAST_RETURN_IF_ERROR(CheckPeer(rank, "receives from", slice.peer, size));
    const SendSlice* sent = next_for_me(slice.peer);
    if (sent == nullptr || sent->bytes.size() != slice.bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", slice.peer, " sends ",
          sent == nullptr ? 0 : sent->bytes.size(), " bytes to rank ", rank,
          ", which expects ", slice.bytes.size(),
          "; the two follow different schedules or steps"));
    }
    if (!slice.bytes.empty()) {
      std::memcpy(slice.bytes.data(), sent->bytes.data(), slice.bytes.size());
    }
  }
  for (uint32_t peer = 0; peer < size; ++peer) {
    const SendSlice* rest = peer == rank ? nullptr : next_for_me(peer);
    if (rest == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", peer, " sends ", rest->bytes.size(), " bytes to rank ", rank,
        ", which expects none; the two follow different schedules or steps"));
  }
  return absl::OkStatus();
}

// State shared by the ranks. An exchange goes through three phases under the
// lock: all ranks post their sends; each copies what it receives (outside the
// lock, counted in copying_); when all have copied, the exchange ends and its
// number is incremented.
class Group {
 public:
  Group(uint32_t size, absl::Duration timeout)
      : size_(size), timeout_(timeout), sends_(size), has_posted_(size) {}

  uint32_t size() const { return size_; }

  absl::Status Exchange(uint32_t rank, absl::Span<const SendSlice> sends,
                        absl::Span<const ReceiveSlice> receives) {
    BALLAST_ASSIGN_OR_RETURN(const Sends all, BeginCopy(rank, sends));
    const absl::Status copied = CopySlices(rank, all, receives);
    if (!copied.ok()) Abort(copied);
    return EndCopy();
  }

  void Abort(const absl::Status& reason) {
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = reason;
    changed_.NotifyAll();
  }

 private:
  // Posts this rank's sends, waits until all ranks have posted, and returns all
  // sends. No rank's slices are released before this rank's EndCopy.
  absl::StatusOr<Sends> BeginCopy(uint32_t rank,
                                  absl::Span<const SendSlice> sends) {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    sends_[rank] = sends;
    has_posted_[rank] = true;
    if (++posted_ == size_) {
      copying_ = size_;
      changed_.NotifyAll();
    }
    // copying_ cannot return to 0 before this rank's own EndCopy, however late
    // this rank wakes.
    const absl::Time end = absl::Now() + timeout_;
    while (copying_ == 0 && status_.ok()) {
      const absl::Duration left = end - absl::Now();
      if (left > absl::ZeroDuration()) {
        changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
        continue;
      }
      status_ = Missing(rank);
      changed_.NotifyAll();
    }
    if (copying_ == 0) return status_;
    return sends_;
  }

  // Waits until every rank has copied, even after an abort, since peers read
  // this rank's slices until then. Copying waits for nothing, so it ends in
  // finite time.
  absl::Status EndCopy() {
    MutexLock lock(&mutex_);
    const uint64_t exchange = exchange_;
    if (--copying_ == 0) {
      posted_ = 0;
      has_posted_.assign(size_, false);
      ++exchange_;
      result_ = status_;
      changed_.NotifyAll();
      return result_;
    }
    while (exchange == exchange_) changed_.Wait(&mutex_);
    // Not status_: a peer that has finished may leave before this rank wakes.
    return result_;
  }

  absl::Status Missing(uint32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<uint32_t> missing;
    for (uint32_t r = 0; r < size_; ++r) {
      if (!has_posted_[r]) missing.push_back(r);
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", rank, " waited ", absl::FormatDuration(timeout_),
        " in an exchange for rank ", absl::StrJoin(missing, ", "),
        " of this process, which did not come to it; does its thread still ask "
        "for batches?"));
  }

  const uint32_t size_;
  const absl::Duration timeout_;
  Mutex mutex_;
  CondVar changed_;
  Sends sends_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> has_posted_ ABSL_GUARDED_BY(mutex_);
  uint32_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t copying_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t exchange_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the current one
  absl::Status result_ ABSL_GUARDED_BY(mutex_);    // of the one before
  absl::Status status_ ABSL_GUARDED_BY(mutex_);    // final once not OK
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, uint32_t rank)
      : group_(std::move(group)), rank_(rank) {}

  ~InProcessCommunicator() override {
    group_->Abort(absl::UnavailableError(
        absl::StrCat("rank ", rank_, " left the exchange")));
  }

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return group_->size(); }

  bool on_device() const override { return false; }

  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle) override {
    return group_->Exchange(rank_, sends, receives);
  }

  // Between threads every error is returned by the call itself.
  absl::Status Check() override { return absl::OkStatus(); }

  void Abort(const absl::Status& reason) override { group_->Abort(reason); }

 private:
  const std::shared_ptr<Group> group_;
  const uint32_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> InProcessGroup(
    uint32_t size, absl::Duration timeout) {
  const auto group = std::make_shared<Group>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (uint32_t rank = 0; rank < size; ++rank) {
    ends.push_back(std::make_unique<InProcessCommunicator>(group, rank));
  }
  return ends;
}

}  // namespace ballast
