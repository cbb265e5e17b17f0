#ifndef BALLAST_COMMON_GRPC_LOG_H_
#define BALLAST_COMMON_GRPC_LOG_H_

namespace ballast {

// From now on sends gRPC's messages (a failed handshake, a peer that pings too
// often; more with $GRPC_VERBOSITY and $GRPC_TRACE) to the log of the process
// (common/log.h) instead of stderr. gRPC's errors become warnings, since the
// caller reports any error that ends a call or the program; other levels stay.
// Each copy of gRPC has its own setting: programs call this, and so do
// libraries that contain a copy. Thread-safe; may be called again.
void SendGrpcLogToLog();

}  // namespace ballast

#endif  // BALLAST_COMMON_GRPC_LOG_H_
