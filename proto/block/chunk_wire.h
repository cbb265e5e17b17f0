#ifndef BALLAST_PROTO_BLOCK_CHUNK_WIRE_H_
#define BALLAST_PROTO_BLOCK_CHUNK_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace ballast {

// A PullResponse with a chunk as bytes on the wire: a few bytes of protobuf's
// framing, then the data. A server sends the data from where they lie, and a
// client copies them to their place.

// Longest framing, of any chunk.
inline constexpr size_t kMaxChunkPrefix = 2 * (1 + 10);

// The framing before `length` bytes of data.
std::string ChunkPrefix(uint64_t length);

// The length of the framing of a message of `message_bytes` that is one chunk
// framed as ChunkPrefix does: the rest is data. Nothing for any other message,
// which protobuf may still be able to read.
// `first`: the message's first kMaxChunkPrefix bytes, or all of a shorter one.
// Bytes from anywhere are safe to pass.
std::optional<size_t> ReadChunkPrefix(absl::Span<const uint8_t> first,
                                      uint64_t message_bytes);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_CHUNK_WIRE_H_
