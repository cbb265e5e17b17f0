#ifndef BALLAST_SERVER_SERVICE_CALL_LIMITS_H_
#define BALLAST_SERVER_SERVICE_CALL_LIMITS_H_

#include <grpcpp/server_builder.h>

namespace ballast {

// Limits what clients may send and how many calls they open, and sets when a
// connection that is silent counts as lost.
void SetCallLimits(grpc::ServerBuilder* builder);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_CALL_LIMITS_H_
