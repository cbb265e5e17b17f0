#include "proto/block/chunk_wire.h"

#include "proto/loader_service.pb.h"

namespace ballast {
namespace {

constexpr uint8_t kLengthDelimited = 2;  // protobuf's wire type

constexpr uint8_t Tag(int field) { return field << 3 | kLengthDelimited; }

constexpr uint8_t kChunkTag = Tag(v1::PullResponse::kChunkFieldNumber);
constexpr uint8_t kDataTag = Tag(v1::PullResponse::Chunk::kDataFieldNumber);

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

}  // namespace

std::string ChunkPrefix(uint64_t length) {
  std::string data(1, kDataTag);
  AppendVarint(length, &data);
  std::string prefix(1, kChunkTag);
  AppendVarint(data.size() + length, &prefix);
  return prefix + data;
}

std::optional<size_t> ReadChunkPrefix(absl::Span<const uint8_t> first,
                                      uint64_t message_bytes) {
  // ChunkPrefix always writes the shortest framing whose lengths fit, so it is
  // enough to compare with it.
  for (size_t size = 4; size <= first.size() && size <= message_bytes; ++size) {
    const std::string prefix = ChunkPrefix(message_bytes - size);
    if (prefix.size() != size) continue;
    for (size_t i = 0; i < size; ++i) {
      if (first[i] != static_cast<uint8_t>(prefix[i])) return std::nullopt;
    }
    return size;
  }
  return std::nullopt;
}

}  // namespace ballast
