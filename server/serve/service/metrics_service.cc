#include "server/serve/service/metrics_service.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/mutex.h"

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
    // Ranks that restarted at an earlier step go through the same steps again.
    if (current->step() < reached_ && sent_ > 0) {
      next_ = std::min<uint64_t>(*next_, current->step());
    }
    reached_ = current->step();
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
  // nullopt: training's current step, once there is one.
  std::optional<uint64_t> next_ ABSL_GUARDED_BY(mutex_);
  uint64_t reached_ ABSL_GUARDED_BY(mutex_) = 0;  // Current of the last look
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

namespace {

// One GetBalance call. Asks workers for one step after the other, so that it
// never occupies more than one worker. Deletes itself when gRPC is done with
// it.
class BalanceCall final : public grpc::ServerUnaryReactor {
 public:
  BalanceCall(BalanceBoard* board, const v1::GetBalanceRequest& request,
              v1::GetBalanceResponse* response, std::atomic<int>* waiting)
      : board_(board),
        next_(request.from_step()),
        left_(std::max(request.steps(), 1u)),
        ranks_(request.ranks()),
        response_(response),
        waiting_(waiting) {}

  void Run() {
    while (left_ > 0 && !cancelled_.load()) {
      const BalanceBoard::Shared known = board_->Find(next_);
      if (known == nullptr) {
        board_->Get(next_, [this](const auto& balance) {
          if (!balance.ok()) {
            End(balance.status());
            return;
          }
          Add(**balance);
          Run();
        });
        return;
      }
      Add(*known);
    }
    End(cancelled_.load() ? absl::CancelledError("the client left")
                          : absl::OkStatus());
  }

  void OnCancel() override { cancelled_ = true; }
  void OnDone() override {
    --*waiting_;
    delete this;
  }

 private:
  void Add(const v1::StepBalance& balance) {
    *response_->add_steps() = balance;
    if (!ranks_) {
      DropRanks(response_->mutable_steps(response_->steps_size() - 1));
    }
    ++next_;
    --left_;
  }

  void End(const absl::Status& status) {
    // If the data end before the last step, the steps so far are the answer.
    const bool enough =
        absl::IsOutOfRange(status) && !response_->steps().empty();
    Finish(ToGrpcStatus(enough ? absl::OkStatus() : status));
  }

  BalanceBoard* const board_;
  uint64_t next_;
  uint32_t left_;
  const bool ranks_;
  v1::GetBalanceResponse* const response_;
  std::atomic<int>* const waiting_;
  std::atomic<bool> cancelled_{false};
};

absl::Status CheckRange(const v1::GetBalanceRequest& request,
                        const v1::Job& job) {
  if (request.steps() > MetricsServiceImpl::kMaxSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("GetBalanceRequest.steps is ", request.steps(),
                     ", wanted at most ", MetricsServiceImpl::kMaxSteps));
  }
  if (!request.ranks()) return absl::OkStatus();
  uint64_t ranks = 0;
  for (const v1::Job::ModuleSize& module : job.modules()) ranks += module.dp();
  const uint64_t entries = std::max(request.steps(), 1u) * ranks;
  if (entries > MetricsServiceImpl::kMaxRankEntries) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GetBalanceRequest asks for ", request.steps(), " steps of ", ranks,
        " ranks in all modules, ", entries,
        " entries a column; wanted at most ",
        MetricsServiceImpl::kMaxRankEntries, ": fewer steps, or ranks: false"));
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* MetricsServiceImpl::GetStatus(
    grpc::CallbackServerContext* context,
    const v1::GetStatusRequest* /*request*/, v1::GetStatusResponse* response) {
  *response = state_->Status();
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* MetricsServiceImpl::GetBalance(
    grpc::CallbackServerContext* context, const v1::GetBalanceRequest* request,
    v1::GetBalanceResponse* response) {
  const absl::Status valid = CheckRange(*request, job_);
  if (!valid.ok()) return Finished(context, valid);
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    --waiting_;
    return Finished(
        context,
        absl::ResourceExhaustedError(absl::StrCat(
            kMaxWaiting, " queries of the balance are under way; try again")));
  }
  auto* call = new BalanceCall(balance_.get(), *request, response, &waiting_);
  call->Run();
  return call;
}

grpc::ServerWriteReactor<v1::WatchBalanceResponse>*
MetricsServiceImpl::WatchBalance(grpc::CallbackServerContext* /*context*/,
                                 const v1::WatchBalanceRequest* request) {
  return watches_->Open(*request);
}

grpc::ServerUnaryReactor* MetricsServiceImpl::GetStats(
    grpc::CallbackServerContext* context, const v1::GetStatsRequest* request,
    v1::GetStatsResponse* response) {
  const std::string& prefix = request->prefix();
  const bool is_name = std::all_of(
      prefix.begin(), prefix.end(),
      [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
  if (prefix.size() > kMaxPrefix || !is_name) {
    return Finished(context,
                    absl::InvalidArgumentError(absl::StrCat(
                        "GetStatsRequest.prefix is not a part of a name: "
                        "wanted at most ",
                        kMaxPrefix, " letters, digits and underscores")));
  }
  for (v1::MetricFamily& family : state_->Metrics()) {
    if (absl::StartsWith(family.name(), prefix)) {
      *response->add_families() = std::move(family);
    }
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* MetricsServiceImpl::GetHistory(
    grpc::CallbackServerContext* context, const v1::GetHistoryRequest* request,
    v1::GetHistoryResponse* response) {
  const uint32_t seconds = request->seconds() == 0 ? 3600 : request->seconds();
  if (seconds < 60 || seconds > 86400) {
    return Finished(context, absl::InvalidArgumentError(absl::StrCat(
                                 "GetHistoryRequest.seconds is ", seconds,
                                 ", wanted 60 to 86400")));
  }
  if (history_ == nullptr) {
    return Finished(context,
                    absl::FailedPreconditionError(
                        "this server keeps no figures over time, because its "
                        "configuration has no serve.http"));
  }
  *response = MakeHistoryResponse(state_->name(), *history_,
                                  absl::Seconds(seconds), kMaxHistory);
  return Finished(context, absl::OkStatus());
}

}  // namespace ballast
