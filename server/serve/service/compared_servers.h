#ifndef BALLAST_SERVER_SERVE_SERVICE_COMPARED_SERVERS_H_
#define BALLAST_SERVER_SERVE_SERVICE_COMPARED_SERVERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/channel_security.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Checks whether a history, which may come from any server, can be drawn:
// ascending times, a value of each column at each time, and the bounds that the
// message states. INVALID_ARGUMENT names what is wrong. Pure.
absl::Status CheckHistory(const v1::GetHistoryResponse& history);

// Servers of other jobs (serve.compare_with), whose figures the page draws next
// to its own. They are asked when a page asks, each by one caller at a time and
// at most once in kKeep; other callers get the last answer. Keeps one answer of
// at most 1 MiB for each server. Thread-safe.
class ComparedServers {
 public:
  static constexpr absl::Duration kKeep = absl::Seconds(4);

  // Asks the server at `address`; blocks for a bounded time.
  using Call = std::function<absl::StatusOr<v1::GetHistoryResponse>(
      const std::string& address, uint32_t seconds)>;

  // `clock` is not owned.
  ComparedServers(std::vector<std::string> addresses, Call call, Clock* clock);

  // One object:
  //   addresses ["HOST:PORT"...]: all of them
  //   history: of server number `server`, from 0 (HistoryJson); null: none
  //     is known yet
  //   age: seconds since it was fetched; null without it
  //   error: why the last call failed, "" if it did not
  // Blocks as the call does. Without such a server, history is null, and error
  // is "" (no server at all) or says so.
  std::string Json(size_t server, absl::Duration range);

 private:
  struct Peer {
    std::string address;
    Mutex mutex;
    bool calling ABSL_GUARDED_BY(mutex) = false;
    absl::Time asked ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
    absl::Time fetched ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
    absl::Duration range ABSL_GUARDED_BY(mutex);  // of the last call
    std::string history ABSL_GUARDED_BY(mutex);   // JSON; "": none
    std::string error ABSL_GUARDED_BY(mutex);
  };
  void Ask(Peer* peer, absl::Duration range) const;

  const Call call_;
  Clock* const clock_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

// Calls MetricsService.GetHistory over gRPC, secured by `security`, on a
// separate connection. Blocks for at most two seconds and takes at most 1 MiB.
// Errors: as the call, with advice where a server does not know it or refuses
// the credentials; as ChannelCredentialsFor. For any number of threads.
ComparedServers::Call GrpcHistoryCall(PeerSecurity security);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_COMPARED_SERVERS_H_
