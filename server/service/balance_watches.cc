#include "server/service/balance_watches.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "server/pull/stream_reactor.h"

namespace ballast {

using BalanceReactor =
    StreamReactor<grpc::ServerWriteReactor<v1::WatchBalanceResponse>,
                  v1::WatchBalanceResponse>;

// One WatchBalance call. mutex_ is never held while the reactor or the board is
// called.
class BalanceWatch final : public BalanceReactor,
                           public std::enable_shared_from_this<BalanceWatch> {
 public:
  BalanceWatch(BalanceWatches* watches, const v1::WatchBalanceRequest& request)
      : watches_(watches), steps_(request.steps()), ranks_(request.ranks()) {
    if (request.has_from_step()) next_ = request.from_step();
    watches_->calls_->Begin();
  }

  // Sends the next step if it is due. Also called when training has reached
  // another step.
  void SendIfDue() {
    const std::optional<uint64_t> step = TakeDueStep();
    if (!step.has_value()) return;
    if (const auto known = watches_->board_->Find(*step)) {
      Send(*known);
      return;
    }
    watches_->board_->Get(
        *step, [self = shared_from_this()](
                   const absl::StatusOr<BalanceBoard::Shared>& balance) {
          if (balance.ok()) {
            self->Send(**balance);
          } else {
            self->End(balance.status());
          }
        });
  }

  void OnDone() override {
    // Keeps this alive: the last owner, unless a worker still computes for it.
    const std::shared_ptr<BalanceWatch> self = shared_from_this();
    watches_->open_.Forget(self);
    watches_->calls_->End();
  }

 protected:
  void OnWritten() override {
    if (ended()) return;
    bool all = false;
    {
      MutexLock lock(&mutex_);
      all = ++sent_ == steps_;
      ++*next_;
      waits_ = !all;
    }
    if (all) {
      End(absl::OkStatus());
    } else {
      SendIfDue();
    }
  }

 private:
  // Returns the next step, once, if training has reached it.
  std::optional<uint64_t> TakeDueStep() {
    const BalanceBoard::Shared current = watches_->board_->Current();
    if (current == nullptr) return std::nullopt;
    MutexLock lock(&mutex_);
    if (!waits_) return std::nullopt;
    if (!next_.has_value()) next_ = current->step();
    if (*next_ > current->step()) return std::nullopt;
    waits_ = false;
    return next_;
  }

  void Send(const v1::StepBalance& balance) {
    v1::WatchBalanceResponse response;
    *response.mutable_balance() = balance;
    if (!ranks_) DropRanks(response.mutable_balance());
    Write(std::move(response));
  }

  BalanceWatches* const watches_;
  const uint64_t steps_;  // 0: no end
  const bool ranks_;
  Mutex mutex_;
  // nullopt: the step that training is at, once there is one.
  std::optional<uint64_t> next_ ABSL_GUARDED_BY(mutex_);
  // True if next_ is still to be sent or requested.
  bool waits_ ABSL_GUARDED_BY(mutex_) = true;
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::shared_ptr<BalanceWatches> BalanceWatches::Create(
    std::shared_ptr<BalanceBoard> board, CallCount* calls) {
  std::shared_ptr<BalanceWatches> watches(
      new BalanceWatches(std::move(board), calls));
  watches->board_->SetListener(
      [weak = std::weak_ptr<BalanceWatches>(watches)](uint64_t /*step*/) {
        if (const auto watches = weak.lock()) watches->OnStep();
      });
  return watches;
}

grpc::ServerWriteReactor<v1::WatchBalanceResponse>* BalanceWatches::Open(
    const v1::WatchBalanceRequest& request) {
  const auto watch = std::make_shared<BalanceWatch>(this, request);
  absl::Status refusal = open_.Add(watch, "balance");
  if (refusal.ok()) {
    watch->SendIfDue();
  } else {
    watch->End(std::move(refusal));
  }
  return watch.get();
}

void BalanceWatches::OnStep() {
  for (const auto& watch : open_.open()) watch->SendIfDue();
}

void BalanceWatches::Drain() { open_.Drain(); }

}  // namespace ballast
