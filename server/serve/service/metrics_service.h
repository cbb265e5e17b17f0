#ifndef BALLAST_SERVER_SERVE_SERVICE_METRICS_SERVICE_H_
#define BALLAST_SERVER_SERVE_SERVICE_METRICS_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <grpcpp/support/server_callback.h>

#include "proto/job.pb.h"
#include "proto/metrics_service.grpc.pb.h"
#include "proto/metrics_service.pb.h"
#include "server/serve/monitor/balance_board.h"
#include "server/serve/monitor/server_state.h"
#include "server/serve/monitor/state_history.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/pull/stream_reactor.h"

namespace ballast {

class BalanceWatch;

// The WatchBalance calls of a server. Each call holds at most one step's
// balance. Thread-safe. Must outlive the gRPC server.
class BalanceWatches {
 public:
  // Becomes the board's listener; the board may outlive it. `calls` counts the
  // open calls; it is not owned and must outlive them.
  static std::shared_ptr<BalanceWatches> Create(
      std::shared_ptr<BalanceBoard> board, CallCount* calls);

  // Never returns null. This owns the call until gRPC is done with it. Beyond
  // WatchSet::kMaxOpen calls, the call ends with RESOURCE_EXHAUSTED.
  grpc::ServerWriteReactor<v1::WatchBalanceResponse>* Open(
      const v1::WatchBalanceRequest& request);

  // Ends all calls, present and future, with UNAVAILABLE. Does not wait.
  void Drain();

 private:
  friend class BalanceWatch;

  BalanceWatches(std::shared_ptr<BalanceBoard> board, CallCount* calls)
      : board_(std::move(board)), calls_(calls) {}
  void OnStep();

  const std::shared_ptr<BalanceBoard> board_;
  CallCount* const calls_;
  WatchSet<BalanceWatch> open_;
};

// Implements proto/metrics_service.proto. Thread-safe. Must outlive the gRPC
// server that it is registered with.
class MetricsServiceImpl final : public v1::MetricsService::CallbackService {
 public:
  static constexpr uint32_t kMaxSteps = 256;
  static constexpr uint64_t kMaxRankEntries = uint64_t{1} << 20;
  // Limit of GetBalance calls in progress; more end with RESOURCE_EXHAUSTED.
  static constexpr int kMaxWaiting = 16;
  static constexpr size_t kMaxPrefix = 128;
  // Limit of points in GetHistory.
  static constexpr size_t kMaxHistory = 360;

  // `calls` counts open WatchBalance calls. Neither `state` nor `calls` is
  // owned; both must outlive this.
  MetricsServiceImpl(v1::Job job, const ServerState* state,
                     const std::shared_ptr<BalanceBoard>& balance,
                     CallCount* calls)
      : job_(std::move(job)),
        state_(state),
        balance_(balance),
        watches_(BalanceWatches::Create(balance, calls)) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* GetBalance(
      grpc::CallbackServerContext* context,
      const v1::GetBalanceRequest* request,
      v1::GetBalanceResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchBalanceResponse>* WatchBalance(
      grpc::CallbackServerContext* context,
      const v1::WatchBalanceRequest* request) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const v1::GetStatsRequest* request,
                                     v1::GetStatsResponse* response) override;

  grpc::ServerUnaryReactor* GetHistory(
      grpc::CallbackServerContext* context,
      const v1::GetHistoryRequest* request,
      v1::GetHistoryResponse* response) override;

  // Sets the history that GetHistory reads; not owned. Call it before the
  // service is registered; without it there is no history.
  void KeepHistory(const StateHistory* history) { history_ = history; }

  // Ends the watches with UNAVAILABLE.
  void Drain() { watches_->Drain(); }

 private:
  const v1::Job job_;
  const ServerState* const state_;
  const std::shared_ptr<BalanceBoard> balance_;
  const std::shared_ptr<BalanceWatches> watches_;
  const StateHistory* history_ = nullptr;
  std::atomic<int> waiting_{0};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_METRICS_SERVICE_H_
