#ifndef BALLAST_COMMON_GRPC_LOG_H_
#define BALLAST_COMMON_GRPC_LOG_H_

namespace ballast {

// Sends gRPC's messages (a handshake that failed, a peer that pings too often;
// more with $GRPC_VERBOSITY and $GRPC_TRACE) from now on to the log of the
// process (common/log.h) instead of stderr. gRPC's errors become warnings: the
// caller reports an error that ends a call or the program. Other levels stay.
// The setting is one for each copy of gRPC, so programs call this, and
// libraries that hold their own copy. Thread-safe; may be called again.
void SendGrpcLogToLog();

}  // namespace ballast

#endif  // BALLAST_COMMON_GRPC_LOG_H_
