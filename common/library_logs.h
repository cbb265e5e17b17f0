#ifndef BALLAST_COMMON_LIBRARY_LOGS_H_
#define BALLAST_COMMON_LIBRARY_LOGS_H_

namespace ballast {

// From now on sends the messages of gRPC (a failed handshake, a peer that pings
// too often; more with $GRPC_VERBOSITY and $GRPC_TRACE) and of Protocol Buffers
// (text that is not UTF-8) to the log of the process (common/log.h) instead of
// stderr. Errors become warnings, since the caller reports any error that ends
// a call or the program; other levels stay. Each copy of the libraries has its
// own setting: programs call this, and so do libraries that contain a copy.
// Thread-safe; may be called again.
void SendLibraryLogsToLog();

}  // namespace ballast

#endif  // BALLAST_COMMON_LIBRARY_LOGS_H_
