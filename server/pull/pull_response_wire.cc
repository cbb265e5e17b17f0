#include "server/pull/pull_response_wire.h"

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/slice.h>

#include "proto/block/chunk_wire.h"

namespace ballast {
namespace {

using Holder = std::shared_ptr<const Block>;

// The bytes of `block`, which is held until gRPC destroys the slice.
grpc::Slice SliceOf(Holder block, absl::Span<const uint8_t> bytes) {
  return grpc::Slice(
      const_cast<uint8_t*>(bytes.data()), bytes.size(),
      [](void* holder) { delete static_cast<Holder*>(holder); },
      new Holder(std::move(block)));
}

}  // namespace

grpc::ByteBuffer EncodeResponse(OutgoingMessage message) {
  if (message.block == nullptr) {
    grpc::ByteBuffer bytes;
    bool own = false;
    grpc::SerializationTraits<v1::PullResponse>::Serialize(message.message,
                                                           &bytes, &own);
    return bytes;
  }
  const grpc::Slice slices[] = {
      grpc::Slice(ChunkPrefix(message.chunk.size())),
      SliceOf(std::move(message.block), message.chunk)};
  return grpc::ByteBuffer(slices, 2);
}

absl::StatusOr<v1::PullRequest> DecodeRequest(grpc::ByteBuffer bytes) {
  v1::PullRequest request;
  if (!grpc::SerializationTraits<v1::PullRequest>::Deserialize(&bytes, &request)
           .ok()) {
    return absl::InvalidArgumentError(
        "the client sent a message that is not a PullRequest");
  }
  return request;
}

}  // namespace ballast
