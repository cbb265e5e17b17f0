#include "client/pull_channel.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
