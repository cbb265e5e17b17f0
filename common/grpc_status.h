#ifndef BALLAST_COMMON_GRPC_STATUS_H_
#define BALLAST_COMMON_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace grpc {
class CallbackServerContext;
class ServerUnaryReactor;
}  // namespace grpc

namespace ballast {

// The only place where the two status types meet. Codes have the same numbers
// on both sides; messages are carried over, details are not.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Ends a unary call with `status`. Returns what its handler returns.
grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const absl::Status& status);

}  // namespace ballast

#endif  // BALLAST_COMMON_GRPC_STATUS_H_
