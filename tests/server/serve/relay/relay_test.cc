#include "server/serve/relay/relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/serve/relay/relayed_peer.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kSettingsFrame("\0\0\0\4\0\0\0\0\0", 9);

// The ends that gRPC would get.
class Passed {
 public:
  void Add(OwnedFd end) {
    MutexLock lock(&mutex_);
    ends_.push_back(std::move(end));
    changed_.NotifyAll();
  }
  // Blocks until there is one.
  OwnedFd Take() {
    MutexLock lock(&mutex_);
    while (ends_.empty()) changed_.Wait(&mutex_);
    OwnedFd end = std::move(ends_.front());
    ends_.erase(ends_.begin());
    return end;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<OwnedFd> ends_ ABSL_GUARDED_BY(mutex_);
};

OwnedFd Connect(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.find(':') + 1), &port));
  to.sin_port = htons(static_cast<uint16_t>(port));
  OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    fd.Reset();
  }
  return fd;
}

void Send(const OwnedFd& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// Exactly `size` bytes; fewer if the other end closes.
std::string Receive(const OwnedFd& fd, size_t size) {
  std::string text;
  while (text.size() < size) {
    pollfd ready = {fd.get(), POLLIN, 0};
    poll(&ready, 1, -1);
    char buffer[4096];
    const ssize_t n =
        recv(fd.get(), buffer, std::min(sizeof(buffer), size - text.size()), 0);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

class RelayTest : public ::testing::Test {
 protected:
  void Start(const std::string& address, size_t places) {
    auto sockets = OpenListenSockets(address);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    listening_ = sockets->sockets[0].get();
    address_ = sockets->address;
    Relay::Settings settings;
    settings.places = places_ = std::make_shared<ConnectionPlaces>(places);
    settings.budgets = std::make_shared<WorkBudgets>(1000, absl::Hours(1));
    settings.calls = std::make_shared<OpenCalls>(1000);
    settings.pass = [this](OwnedFd end) { passed_.Add(std::move(end)); };
    auto relay = Relay::Start(*std::move(sockets), std::move(settings));
    ASSERT_TRUE(relay.ok()) << relay.status();
    relay_ = *std::move(relay);
  }

  // A client gets through to the end that is passed.
  void ExpectServes() {
    OwnedFd client = Connect(address_);
    while (client.get() < 0) client = Connect(address_);
    Send(client, kPreface);
    const OwnedFd end = passed_.Take();
    EXPECT_EQ(Receive(end, kPreface.size()), kPreface);
    Send(end, "answer");
    EXPECT_EQ(Receive(client, 6), "answer");
  }

  Passed passed_;
  std::shared_ptr<ConnectionPlaces> places_;
  std::string address_;
  int listening_ = -1;
  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, RelaysBothWaysAndBothEnds) {
  Start("127.0.0.1:0", 16);
  OwnedFd client = Connect(address_);
  Send(client, kPreface + kSettingsFrame);
  OwnedFd end = passed_.Take();
  EXPECT_EQ(Receive(end, 33), kPreface + kSettingsFrame);
  const std::string large(3 << 20, 'x');
  std::string got;
  // In pieces, since nobody else empties the sockets.
  for (size_t i = 0; i < large.size(); i += 1 << 15) {
    Send(end, large.substr(i, 1 << 15));
    got += Receive(client, 1 << 15);
  }
  EXPECT_TRUE(got == large);
  // gRPC's end closes the client's, and the other way around.
  end.Reset();
  EXPECT_EQ(Receive(client, 1), "");
  client = Connect(address_);
  Send(client, kPreface);
  end = passed_.Take();
  EXPECT_EQ(Receive(end, kPreface.size()), kPreface);
  client.Reset();
  EXPECT_EQ(Receive(end, 1), "");
}

TEST_F(RelayTest, GrpcCanNameThePeer) {
  Start("127.0.0.1:0", 16);
  const OwnedFd client = Connect(address_);
  Send(client, kPreface);
  const OwnedFd end = passed_.Take();
  sockaddr_un name = {};
  socklen_t bytes = sizeof(name);
  ASSERT_EQ(getpeername(end.get(), reinterpret_cast<sockaddr*>(&name), &bytes),
            0);
  sockaddr_in own = {};
  socklen_t own_bytes = sizeof(own);
  getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &own_bytes);
  const std::string text(name.sun_path + 1,
                         bytes - offsetof(sockaddr_un, sun_path) - 1);
  EXPECT_EQ(RelayedPeerName(absl::StrCat("unix-abstract:", text)),
            absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port)));
  EXPECT_EQ(RelayedPeerName("ipv4:1.2.3.4:5"), "ipv4:1.2.3.4:5");
  EXPECT_EQ(RelayedPeerName("unix-abstract:other"), "unix-abstract:other");
}

// gRPC 1.51 never accepts again after a moment without descriptors.
TEST_F(RelayTest, AcceptsAgainAfterAMomentWithoutDescriptors) {
  Start("127.0.0.1:0", 1000);
  ExpectServes();
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  std::vector<OwnedFd> clients;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
  }
  const OwnedFd last(dup(clients.back().get()));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(last.get()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<OwnedFd> fill;
  while (true) {
    OwnedFd more(dup(last.get()));
    if (more.get() < 0) break;
    fill.push_back(std::move(more));
  }
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  uint32_t port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(address_.substr(address_.find(':') + 1), &port));
  to.sin_port = htons(static_cast<uint16_t>(port));
  // The relay's own connection comes, too.
  while (places_->accepted.value() < 2) std::this_thread::yield();
  const uint64_t accepted = places_->accepted.value();
  for (const OwnedFd& client : clients) {
    EXPECT_EQ(
        connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  EXPECT_EQ(places_->accepted.value(), accepted);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  fill.clear();
  ExpectServes();
  Send(clients[0], kPreface);
  const OwnedFd end = passed_.Take();
  EXPECT_EQ(Receive(end, kPreface.size()), kPreface);
}

TEST_F(RelayTest, OpensASocketThatFailedAgain) {
  Start("127.0.0.1:0", 16);
  ExpectServes();
  // Every accept now fails, as after any fault of the socket.
  ASSERT_EQ(shutdown(listening_, SHUT_RDWR), 0);
  ExpectServes();
  EXPECT_GE(places_->reopened.value(), 1u);
}

TEST_F(RelayTest, SilentConnectionsGiveWay) {
  Start("127.0.0.1:0", 64);
  std::vector<OwnedFd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(Connect(address_));
    if (i % 2 == 0) Send(silent.back(), kPreface.substr(0, 3));
  }
  ExpectServes();
  EXPECT_LE(places_->open(), 64u);
  EXPECT_EQ(Receive(silent[0], 1), "");
}

TEST_F(RelayTest, AnEndlessHeaderClosesTheConnection) {
  Start("127.0.0.1:0", 16);
  const OwnedFd client = Connect(address_);
  Send(client, kPreface + kSettingsFrame);
  const OwnedFd end = passed_.Take();
  const std::string header("\0\0\0\1\0\0\0\0\1", 9);
  std::string more("\0\x40\0\x09\0\0\0\0\1", 9);
  more.append(0x4000, 'a');
  send(client.get(), header.data(), header.size(), MSG_NOSIGNAL);
  for (int i = 0; i < 8; ++i) {
    send(client.get(), more.data(), more.size(), MSG_NOSIGNAL);
  }
  // Nothing of it has come.
  EXPECT_EQ(Receive(end, 1 << 20), kPreface + kSettingsFrame);
  EXPECT_EQ(places_->expelled.value(), 1u);
}

TEST_F(RelayTest, AUnixSocketsFileGoesWithIt) {
  const std::string path =
      absl::StrCat("/tmp/ballast-relay-", getpid(), ".sock");
  Start("unix:" + path, 16);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  relay_.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

// Half of the descriptors, three for a connection.
TEST(ConnectionPlacesTest, FollowFromDescriptors) {
  EXPECT_EQ(ConnectionPlaces::OfDescriptors(1024), 170u);
  EXPECT_EQ(ConnectionPlaces::OfDescriptors(3072), 512u);
  EXPECT_EQ(ConnectionPlaces::OfDescriptors(1 << 20), 16'384u);
  EXPECT_EQ(ConnectionPlaces::OfDescriptors(0), 16u);
}

TEST(ConnectionPlacesTest, BoundsPeersAndTcp) {
  ConnectionPlaces places(16);
  std::vector<std::shared_ptr<void>> held;
  const auto take = [&](const std::string& peer, bool is_unix) {
    auto place = places.Take(peer, is_unix, absl::UnixEpoch());
    if (place.ok()) held.push_back(*std::move(place));
    return place.status();
  };
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(take("a", false).ok());
  EXPECT_THAT(std::string(take("a", false).message()),
              HasSubstr("a has 8 connections"));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(take("b", false).ok());
  EXPECT_EQ(take("c", false).code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(take("u", true).ok());
  EXPECT_THAT(std::string(take("v", true).message()),
              StartsWith("16 connections are open"));
  EXPECT_EQ(places.open(), 16u);
  EXPECT_EQ(places.refused.value(), 3u);
  EXPECT_THAT(places.RefusedSince(absl::UnixEpoch()), HasSubstr("ulimit -Hn"));
  EXPECT_EQ(places.RefusedSince(absl::UnixEpoch() + absl::Seconds(1)), "");
  held.erase(held.begin());
  EXPECT_TRUE(take("v", true).ok());
}

}  // namespace
}  // namespace ballast
