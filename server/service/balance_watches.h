#ifndef BALLAST_SERVER_SERVICE_BALANCE_WATCHES_H_
#define BALLAST_SERVER_SERVICE_BALANCE_WATCHES_H_

#include <memory>
#include <utility>

#include <grpcpp/support/server_callback.h>

#include "proto/metrics_service.pb.h"
#include "server/monitor/balance_board.h"
#include "server/pull/call_count.h"
#include "server/service/watch_set.h"

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

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_BALANCE_WATCHES_H_
