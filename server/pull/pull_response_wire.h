#ifndef BALLAST_SERVER_PULL_PULL_RESPONSE_WIRE_H_
#define BALLAST_SERVER_PULL_PULL_RESPONSE_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "proto/loader_service.pb.h"
#include "server/pull/pull_session.h"

namespace ballast {

// Encodes and decodes the messages of a Pull as the bytes that gRPC carries.

// Does not copy a chunk's data: gRPC sends it from where it is, holds the block
// until then, and releases it on any of its threads.
grpc::ByteBuffer EncodeResponse(OutgoingMessage message);

// Parses a client's message. Errors: INVALID_ARGUMENT (not a PullRequest).
absl::StatusOr<v1::PullRequest> DecodeRequest(grpc::ByteBuffer bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_RESPONSE_WIRE_H_
