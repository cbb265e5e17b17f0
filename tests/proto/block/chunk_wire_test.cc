#include "proto/block/chunk_wire.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "proto/loader_service.pb.h"

namespace ballast {
namespace {

absl::Span<const uint8_t> FirstOf(const std::string& message) {
  return {reinterpret_cast<const uint8_t*>(message.data()),
          std::min(message.size(), kMaxChunkPrefix)};
}

// Protobuf itself is the oracle.
TEST(ChunkWireTest, EqualsProtobufsEncoding) {
  for (const size_t length :
       {1, 2, 60, 124, 125, 126, 127, 128, 129, 130, 16379, 16380, 16381, 16382,
        16383, 16384, 16385, 1 << 20, (1 << 21) + 3}) {
    v1::PullResponse message;
    message.mutable_chunk()->set_data(std::string(length, 'x'));
    const std::string bytes = message.SerializeAsString();
    EXPECT_EQ(ChunkPrefix(length) + message.chunk().data(), bytes);
    EXPECT_EQ(ReadChunkPrefix(FirstOf(bytes), bytes.size()),
              bytes.size() - length)
        << length;
  }
}

TEST(ChunkWireTest, LeavesOtherMessagesToProtobuf) {
  v1::PullResponse message;
  EXPECT_EQ(ReadChunkPrefix({}, 0), std::nullopt);
  message.mutable_begin()->set_step(3);
  std::string bytes = message.SerializeAsString();
  EXPECT_EQ(ReadChunkPrefix(FirstOf(bytes), bytes.size()), std::nullopt);
  message.mutable_chunk();  // without data
  bytes = message.SerializeAsString();
  EXPECT_EQ(ReadChunkPrefix(FirstOf(bytes), bytes.size()), std::nullopt);
  // Bytes after the chunk, or fewer bytes than its length.
  message.mutable_chunk()->set_data("abc");
  bytes = message.SerializeAsString();
  EXPECT_NE(ReadChunkPrefix(FirstOf(bytes), bytes.size()), std::nullopt);
  EXPECT_EQ(ReadChunkPrefix(FirstOf(bytes), bytes.size() - 1), std::nullopt);
  EXPECT_EQ(ReadChunkPrefix(FirstOf(bytes + "\x08\x01"), bytes.size() + 2),
            std::nullopt);
  EXPECT_EQ(ReadChunkPrefix(FirstOf(bytes), UINT64_MAX), std::nullopt);
}

}  // namespace
}  // namespace ballast
