#ifndef BALLAST_PROTO_BLOCK_CHUNK_WIRE_H_
#define BALLAST_PROTO_BLOCK_CHUNK_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace ballast {

// A PullResponse with a chunk as bytes on the wire: a few bytes of protobuf
// framing, then the data. A server sends the data from where it lies, and a
// client copies it to its place.

// Length of the longest framing of any chunk.
inline constexpr size_t kMaxChunkPrefix = 2 * (1 + 10);

// The framing before `length` bytes of data.
std::string ChunkPrefix(uint64_t length);

// The length of the framing of a message of `message_bytes` that is one chunk
// framed as by ChunkPrefix; the rest is data. nullopt for any other message,
// which protobuf may still be able to read.
// `first`: the message's first kMaxChunkPrefix bytes, or the whole message if
// shorter. Any bytes are safe to pass.
std::optional<size_t> ReadChunkPrefix(absl::Span<const uint8_t> first,
                                      uint64_t message_bytes);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_CHUNK_WIRE_H_
