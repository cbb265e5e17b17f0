#ifndef BALLAST_COMMON_GRPC_STATUS_H_
#define BALLAST_COMMON_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace ballast {

// The only place where the two status types meet. Codes have the same numbers
// on both sides; messages are carried over, details are not.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace ballast

#endif  // BALLAST_COMMON_GRPC_STATUS_H_
