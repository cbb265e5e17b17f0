#ifndef BALLAST_CLIENT_SERVER_CHANNEL_H_
#define BALLAST_CLIENT_SERVER_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/channel_security.h"
#include "common/status_macros.h"

namespace ballast {

// How one unary call is made.
struct CallOptions {
  absl::string_view name;  // in messages
  // A server that is away fails the call after this at the latest.
  absl::Duration deadline = absl::Seconds(10);
  // Waits for a server that is not there yet, until the deadline.
  bool wait_for_server = false;
  // Looks for a fault of TLS where the server does not answer, for up to two
  // seconds more.
  bool explain = true;
};

// The connection to one server for everything but blocks. Thread-safe.
class ServerChannel {
 public:
  // Does not connect yet. `address`: `unix:/path` or `host:port`; where it is
  // neither, or does not fit `security`, every call answers INVALID_ARGUMENT.
  ServerChannel(const std::string& address, const ChannelSecurity& security);

  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // OK, or why no call can be made.
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
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoNanoseconds(options.deadline));
    context.set_wait_for_ready(options.wait_for_server);
    Response response;
    BALLAST_RETURN_IF_ERROR(
        Explain(options, (stub->*method)(&context, request, &response)));
    return response;
  }

  // The status of a call in words for people: it names server and call.
  // UNAUTHENTICATED where TLS is at fault; UNAVAILABLE also where the server
  // shuts down; else the server's own code.
  absl::Status Explain(const CallOptions& options,
                       const grpc::Status& status) const;
  // `status` with "server ADDRESS: CALL: " before its message.
  absl::Status Named(absl::string_view call, const absl::Status& status) const;

 private:
  const std::string address_;
  const ChannelSecurity security_;
  const absl::Status usable_;
  const std::shared_ptr<grpc::Channel> channel_;
};

// `count` channels for blocks, apart from the one for calls: a large block
// never stands before a small answer, and their messages have a tighter bound.
// Each is a connection of its own.
std::vector<std::shared_ptr<grpc::Channel>> MakePullChannels(
    const std::string& address, const ChannelSecurity& security,
    uint32_t count);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SERVER_CHANNEL_H_
