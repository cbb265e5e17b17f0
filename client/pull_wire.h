#ifndef BALLAST_CLIENT_PULL_WIRE_H_
#define BALLAST_CLIENT_PULL_WIRE_H_

#include <memory>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// Decodes the messages of a Pull from the bytes that gRPC carries.

// A message of the server. Move-only: pieces point into it.
struct PullMessage {
  // The data of a chunk, in pieces as received; empty for other messages.
  bool is_chunk = false;
  std::vector<absl::Span<const uint8_t>> chunk;
  // Any other message.
  v1::PullResponse message;

  // The memory of the pieces.
  std::vector<grpc::Slice> slices;
  std::unique_ptr<v1::PullResponse> parsed_chunk;
};

// Errors: INTERNAL (not a PullResponse).
absl::StatusOr<PullMessage> DecodeResponse(grpc::ByteBuffer bytes);

grpc::ByteBuffer EncodeRequest(const v1::PullRequest& request);

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_WIRE_H_
