#include "server/service/balance_watches.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/grpc_status.h"
#include "common/mutex.h"

namespace ballast {

// One WatchBalance. As in WatchCall, operations are started under mutex_.
class BalanceWatch final
    : public grpc::ServerWriteReactor<v1::WatchBalanceResponse>,
      public std::enable_shared_from_this<BalanceWatch> {
 public:
  BalanceWatch(BalanceWatches* watches, const v1::WatchBalanceRequest& request)
      : watches_(watches), steps_(request.steps()), ranks_(request.ranks()) {
    if (request.has_from_step()) next_ = request.from_step();
    watches_->calls_->Begin();
  }

  void Start() {
    MutexLock lock(&mutex_);
    AskForNext();
  }

  // Training is at another step.
  void OnStep() {
    MutexLock lock(&mutex_);
    if (waits_) AskForNext();
  }

  // The call ends with `status` as soon as no write is under way.
  void End(absl::Status status) {
    MutexLock lock(&mutex_);
    EndLocked(std::move(status));
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) EndLocked(absl::CancelledError("the client left"));
    if (end_.has_value()) {
      EndLocked(*end_);
    } else if (++sent_ == steps_) {
      EndLocked(absl::OkStatus());
    } else {
      ++*next_;
      AskForNext();
    }
  }
  void OnCancel() override { End(absl::CancelledError("the client left")); }
  void OnDone() override {
    // The last owner, unless a worker still computes for it.
    const std::shared_ptr<BalanceWatch> self = shared_from_this();
    watches_->open_.Forget(self);
    watches_->calls_->End();
  }

 private:
  void AskForNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waits_ = true;
    const BalanceBoard::Shared current = watches_->board_->Current();
    if (current == nullptr || end_.has_value()) return;
    if (!next_.has_value()) next_ = current->step();
    if (*next_ > current->step()) return;
    waits_ = false;
    if (const auto known = watches_->board_->Find(*next_)) {
      Send(*known);
      return;
    }
    watches_->board_->Get(
        *next_, [self = shared_from_this()](
                    const absl::StatusOr<BalanceBoard::Shared>& balance) {
          MutexLock lock(&self->mutex_);
          // Ended, and finished, as nothing was being written.
          if (self->end_.has_value()) return;
          if (balance.ok()) {
            self->Send(**balance);
          } else {
            self->EndLocked(balance.status());
          }
        });
  }

  void Send(const v1::StepBalance& balance)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    *response_.mutable_balance() = balance;
    if (!ranks_) DropRanks(response_.mutable_balance());
    writing_ = true;
    StartWrite(&response_);
  }

  // The first end counts.
  void EndLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!end_.has_value()) end_ = std::move(status);
    if (writing_ || finished_) return;
    finished_ = true;
    Finish(ToGrpcStatus(*end_));
  }

  BalanceWatches* const watches_;
  const uint64_t steps_;  // 0: no end
  const bool ranks_;
  Mutex mutex_;
  // Nothing: the one that training is at, once there is one.
  std::optional<uint64_t> next_ ABSL_GUARDED_BY(mutex_);
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;  // for training to get there
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // gRPC's while a write is under way.
  v1::WatchBalanceResponse response_ ABSL_GUARDED_BY(mutex_);
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
    watch->Start();
  } else {
    watch->End(std::move(refusal));
  }
  return watch.get();
}

void BalanceWatches::OnStep() {
  for (const auto& watch : open_.open()) watch->OnStep();
}

void BalanceWatches::Drain() { open_.Drain(); }

}  // namespace ballast
