#ifndef BALLAST_CLIENT_SERVER_CHANNEL_H_
#define BALLAST_CLIENT_SERVER_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/channel_security.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {

// Options of one unary call.
struct CallOptions {
  absl::string_view name;  // in messages
  // The call fails after this long if the server does not answer.
  absl::Duration deadline = absl::Seconds(10);
  // Waits for a server that is not there yet, until the deadline.
  bool wait_for_server = false;
  // If the server does not answer, looks for a fault of TLS, for up to two
  // seconds more.
  bool explain = true;
};

// The connection to one server for everything except blocks. Thread-safe.
class ServerChannel {
 public:
  // Does not connect yet. `address`: `unix:/path` or `host:port`; with any
  // other, or one that does not fit `security`, every call returns
  // INVALID_ARGUMENT.
  ServerChannel(const std::string& address, const ChannelSecurity& security);

  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // OK, or the reason why no call can be made.
  const absl::Status& usable() const { return usable_; }

  // One unary call of a generated stub:
  //   Call({"GetStatus"}, stub.get(), &Stub::GetStatus, request)
  // Errors: as Explain.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      const CallOptions& options, Stub* stub,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) const {
    BALLAST_RETURN_IF_ERROR(usable_);
    grpc::ClientContext context;
    Prepare(options, &context);
    Response response;
    BALLAST_RETURN_IF_ERROR(
        Explain(options, (stub->*method)(&context, request, &response)));
    return response;
  }

  // As Call, of the stub's asynchronous interface (`async`: stub.async()),
  // except that `on_wait` is called on this thread after `period`, and again
  // after each further one, until the server has answered. It may block, but
  // then the answer is returned later.
  template <typename Async, typename Request, typename Response>
  absl::StatusOr<Response> CallAndWatch(
      const CallOptions& options, Async* async,
      void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                            std::function<void(grpc::Status)>),
      const Request& request, absl::Duration period,
      const std::function<void()>& on_wait) const {
    BALLAST_RETURN_IF_ERROR(usable_);
    grpc::ClientContext context;
    Prepare(options, &context);
    Response response;
    const auto answer = std::make_shared<Answer>();
    (async->*method)(&context, &request, &response,
                     [answer](grpc::Status status) {
                       MutexLock lock(&answer->mutex);
                       answer->status = std::move(status);
                       answer->changed.NotifyAll();
                     });
    while (!answer->AwaitFor(period)) on_wait();
    MutexLock lock(&answer->mutex);
    BALLAST_RETURN_IF_ERROR(Explain(options, *answer->status));
    return response;
  }

  // Explains a call's status to people: names server and call. UNAUTHENTICATED
  // for a TLS fault; UNAVAILABLE also if the server shuts down; otherwise the
  // server's own code.
  absl::Status Explain(const CallOptions& options,
                       const grpc::Status& status) const;
  // `status` with "server ADDRESS: CALL: " before its message.
  absl::Status Named(absl::string_view call, const absl::Status& status) const;

 private:
  // The status of a call, which a thread of gRPC sets.
  struct Answer {
    // Whether there is a status; waits for it, at most for `timeout`.
    bool AwaitFor(absl::Duration timeout);

    Mutex mutex;
    CondVar changed;
    std::optional<grpc::Status> status ABSL_GUARDED_BY(mutex);
  };
  static void Prepare(const CallOptions& options, grpc::ClientContext* context);

  const std::string address_;
  const ChannelSecurity security_;
  const absl::Status usable_;
  const std::shared_ptr<grpc::Channel> channel_;
};

// Creates a channel for blocks, separate from the one for calls, so that a
// large block never delays a small answer and messages have a tighter bound.
// Each is its own connection. It goes to `peer` if given: a server of `address`
// as gRPC names it ("ipv4:10.0.0.1:7070"). TLS still expects the name in
// `address`.
std::shared_ptr<grpc::Channel> MakePullChannel(const std::string& address,
                                               const ChannelSecurity& security,
                                               const std::string& peer = "");

// Checks that `address` has a form that clients can connect to: valid for
// ParseNetAddress (common/net_address.h), with a port above 0. Does not
// connect. Errors: INVALID_ARGUMENT, naming the address and the form wanted.
absl::Status CheckServerAddress(absl::string_view address);

// Splits "A,B,C" into addresses without checking them: at least one, possibly
// empty.
std::vector<std::string> SplitServers(absl::string_view list);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SERVER_CHANNEL_H_
