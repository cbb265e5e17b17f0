#ifndef BALLAST_COMMON_GRPC_LOG_H_
#define BALLAST_COMMON_GRPC_LOG_H_

namespace ballast {

// From here on what gRPC has to say (a handshake that failed, a peer that pings
// too often; with $GRPC_VERBOSITY and $GRPC_TRACE more) goes through the log of
// the process (common/log.h) in place of straight to stderr, so that it has its
// format, too. gRPC's errors become warnings, for those that end a call or the
// program are told by whoever made the call; the rest keep their level. For
// programs and for libraries that hold a gRPC of their own, since there is one
// such setting for a gRPC. Thread-safe; may be called again.
void SendGrpcLogToLog();

}  // namespace ballast

#endif  // BALLAST_COMMON_GRPC_LOG_H_
