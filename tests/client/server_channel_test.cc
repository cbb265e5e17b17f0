#include "client/pull_channel.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/pull_stream.h"
#include "client/server_channel.h"
#include "proto/block/block_view.h"
#include "proto/health.grpc.pb.h"
#include "tests/fakes/fake_loader_service.h"

namespace ballast {
namespace {

using grpc::health::v1::HealthCheckResponse;

// Whether the server that the channel reaches serves; it must answer.
bool Serves(const std::shared_ptr<grpc::Channel>& channel, std::string* peer) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  HealthCheckResponse response;
  const grpc::Status status = grpc::health::v1::Health::NewStub(channel)->Check(
      &context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  *peer = context.peer();
  return response.status() == HealthCheckResponse::SERVING;
}

// Two servers stand for the two of one name: only the one that the Pull has
// reached knows the Pull, wherever the name leads now.
TEST(PullChannelsTest, LanesGoToTheServerThatThePullHasReached) {
  const auto reached = FakeLoaderServer::Start();
  const auto other = FakeLoaderServer::Start();
  reached->SetServing(true);
  other->SetServing(false);
  std::string peer;
  PullChannels of_reached(reached->address(), {}, 1);
  ASSERT_TRUE(Serves(of_reached.main(), &peer));
  EXPECT_TRUE(of_reached.LanesTo(peer).empty());

  PullChannels of_name(other->address(), {}, 3);
  EXPECT_EQ(of_name.count(), 3u);
  const auto lanes = of_name.LanesTo(peer);
  ASSERT_EQ(lanes.size(), 2u);
  for (const auto& lane : lanes) {
    std::string lane_peer;
    EXPECT_TRUE(Serves(lane, &lane_peer));
    EXPECT_EQ(lane_peer, peer);
  }
  EXPECT_EQ(of_name.LanesTo(peer), lanes) << "connects anew for each Pull";
  std::string other_peer;
  EXPECT_FALSE(Serves(of_name.main(), &other_peer));
  const auto moved = of_name.LanesTo(other_peer);
  EXPECT_FALSE(Serves(moved[0], &peer));
}

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

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckServerAddressTest, AcceptsAddressesOfServers) {
  for (const std::string address :
       {"unix:/run/ballast/a.sock", "unix:a.sock", "node7:7070",
        "127.0.0.1:65535", "[::1]:7070"}) {
    EXPECT_TRUE(CheckServerAddress(address).ok()) << address;
  }
  EXPECT_TRUE(CheckServerAddress("unix:/" + std::string(106, 'a')).ok());
}

TEST(CheckServerAddressTest, ErrorsNameTheAddressAndTheFormWanted) {
  const std::string long_path = "unix:/" + std::string(107, 'a');
  const struct {
    std::string address, message;
  } cases[] = {
      {"", "wanted unix:/path or host:port"},
      {"node7", "wanted unix:/path or host:port"},
      {":7070", "where host is a name"},
      {"unix:", "a path of 1 to 107 bytes"},
      {long_path, "a path of 1 to 107 bytes"},
      {"node7:", "a port of at most 65535"},
      {"node7:0", "a port of 1 to 65535"},
      {"node7:65536", "a port of at most 65535"},
      {"node7:http", "a port of at most 65535"},
      {"::1:7070", "an IPv6 address in brackets"},
  };
  for (const auto& c : cases) {
    const absl::Status status = CheckServerAddress(c.address);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("\"" + c.address + "\""), HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace ballast
