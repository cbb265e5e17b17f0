#include "client/pull_wire.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <grpcpp/impl/codegen/proto_utils.h>

#include "proto/block/chunk_wire.h"

namespace ballast {
namespace {

absl::Span<const uint8_t> BytesOf(const grpc::Slice& slice) {
  return {slice.begin(), slice.size()};
}

// The first bytes of `slices`, up to the longest framing of a chunk.
std::vector<uint8_t> FirstBytes(const std::vector<grpc::Slice>& slices) {
  std::vector<uint8_t> first;
  for (const grpc::Slice& slice : slices) {
    const auto bytes =
        BytesOf(slice).subspan(0, kMaxChunkPrefix - first.size());
    first.insert(first.end(), bytes.begin(), bytes.end());
    if (first.size() == kMaxChunkPrefix) break;
  }
  return first;
}

}  // namespace

absl::StatusOr<PullMessage> DecodeResponse(grpc::ByteBuffer bytes) {
  PullMessage decoded;
  const absl::Status malformed =
      absl::InternalError("the server sent a message that is no PullResponse");
  if (!bytes.Dump(&decoded.slices).ok()) return malformed;
  std::optional<size_t> prefix =
      ReadChunkPrefix(FirstBytes(decoded.slices), bytes.Length());
  if (prefix.has_value()) {
    decoded.is_chunk = true;
    for (const grpc::Slice& slice : decoded.slices) {
      const size_t skipped = std::min(*prefix, slice.size());
      *prefix -= skipped;
      if (skipped < slice.size()) {
        decoded.chunk.push_back(BytesOf(slice).subspan(skipped));
      }
    }
    return decoded;
  }
  decoded.slices.clear();
  if (!grpc::SerializationTraits<v1::PullResponse>::Deserialize(
           &bytes, &decoded.message)
           .ok()) {
    return malformed;
  }
  if (decoded.message.has_chunk()) {
    // A valid framing, but not the one that this project's servers use.
    decoded.is_chunk = true;
    decoded.parsed_chunk =
        std::make_unique<v1::PullResponse>(std::move(decoded.message));
    const std::string& data = decoded.parsed_chunk->chunk().data();
    decoded.chunk.emplace_back(reinterpret_cast<const uint8_t*>(data.data()),
                               data.size());
  }
  return decoded;
}

grpc::ByteBuffer EncodeRequest(const v1::PullRequest& request) {
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<v1::PullRequest>::Serialize(request, &bytes, &own);
  return bytes;
}

}  // namespace ballast
