#include "server/pull/pull_response_wire.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  return slices;
}

v1::PullResponse Parse(const grpc::ByteBuffer& bytes) {
  std::string all;
  for (const grpc::Slice& slice : SlicesOf(bytes)) {
    all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PullResponse message;
  EXPECT_TRUE(message.ParseFromString(all));
  return message;
}

TEST(PullWireTest, SendsAChunkWithoutACopy) {
  std::vector<uint8_t> bytes(300000, 5);
  bool released = false;
  Block::Content content;
  content.bytes = bytes;
  OutgoingMessage outgoing;
  outgoing.block =
      std::make_shared<const Block>(content, nullptr, [&] { released = true; });
  outgoing.chunk = outgoing.block->bytes().subspan(1000, 200000);
  grpc::ByteBuffer message = EncodeResponse(std::move(outgoing));
  {
    const std::vector<grpc::Slice> slices = SlicesOf(message);
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_EQ(slices[1].begin(), bytes.data() + 1000);
  }
  EXPECT_EQ(Parse(message).chunk().data(), std::string(200000, 5));
  EXPECT_FALSE(released);
  message.Clear();
  EXPECT_TRUE(released);
}

TEST(PullWireTest, EncodesOtherMessagesAsProtobuf) {
  OutgoingMessage outgoing;
  outgoing.message.mutable_shared()->set_offset(4096);
  EXPECT_EQ(Parse(EncodeResponse(std::move(outgoing))).shared().offset(),
            4096u);
}

TEST(PullWireTest, ParsesRequests) {
  v1::PullRequest request;
  request.mutable_credit()->add_blocks(77);
  const grpc::Slice slice(request.SerializeAsString());
  const auto parsed = DecodeRequest(grpc::ByteBuffer(&slice, 1));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->credit().blocks(0), 77u);
  const grpc::Slice junk("\xff\xff\xff");
  EXPECT_EQ(DecodeRequest(grpc::ByteBuffer(&junk, 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
