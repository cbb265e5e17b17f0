#include "client/pull_stream.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "proto/block/block_view.h"

namespace ballast {
namespace {

// A message cut into slices of `size` bytes.
grpc::ByteBuffer Cut(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) {
    slices.emplace_back(bytes.substr(at, size));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Join(const PullMessage& message) {
  std::string all;
  for (const auto piece : message.chunk) {
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return all;
}

TEST(ClientPullWireTest, ChunksAreDecodedHoweverTheyAreSliced) {
  std::string data;
  for (int i = 0; i < 300; ++i) data.push_back(static_cast<char>(i * 7));
  const std::string bytes = ChunkPrefix(data.size()) + data;
  for (size_t size = 1; size <= bytes.size(); ++size) {
    const auto message = DecodeResponse(Cut(bytes, size));
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_TRUE(message->is_chunk);
    EXPECT_EQ(Join(*message), data);
  }
}

TEST(ClientPullWireTest, ChunksInOtherValidFramingsAreDecoded) {
  // Field 2 in a longer varint form: 0x12, and the length in two bytes instead
  // of one.
  const std::string data = "hello";
  const std::string bytes = std::string("\x12\x87\x00\x0a\x05", 5) + data;
  auto message = DecodeResponse(Cut(bytes, 100));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_TRUE(message->is_chunk);
  const PullMessage moved = *std::move(message);
  EXPECT_EQ(Join(moved), data);
}

TEST(ClientPullWireTest, OtherMessagesAreParsed) {
  v1::PullResponse shared;
  shared.mutable_shared()->set_generation(5);
  const auto message = DecodeResponse(Cut(shared.SerializeAsString(), 3));
  ASSERT_TRUE(message.ok());
  EXPECT_FALSE(message->is_chunk);
  EXPECT_EQ(message->message.shared().generation(), 5u);
}

TEST(ClientPullWireTest, RefusesBytesThatAreNotAMessage) {
  EXPECT_EQ(DecodeResponse(Cut("\xff\xff\xff\xff", 2)).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(DecodeResponse(grpc::ByteBuffer()).status().code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ballast
