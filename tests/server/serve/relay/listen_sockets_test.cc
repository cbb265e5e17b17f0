#include "server/serve/relay/listen_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A socket that listens at `path`.
int ListenAt(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_EQ(listen(fd, 1), 0);
  return fd;
}

// Changes to the test's directory and uses relative paths, since paths of
// sockets are short and that of the directory is long.
class SocketFileTest : public ::testing::Test {
 protected:
  SocketFileTest() { EXPECT_EQ(chdir(::testing::TempDir().c_str()), 0); }
};

bool Exists(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0;
}

TEST_F(SocketFileTest, ReportsTheSystemsReasonForNotListening) {
  const auto message = [](const std::string& address) {
    return std::string(OpenListenSockets(address).status().message());
  };
  EXPECT_THAT(message("unix:/no/such/folder/a.sock"),
              AllOf(HasSubstr("unix:/no/such/folder/a.sock"),
                    HasSubstr("No such file or directory")));
  // An address that no machine has: reserved for documentation.
  EXPECT_THAT(message("192.0.2.1:0"),
              AllOf(HasSubstr("192.0.2.1:0"),
                    HasSubstr("Cannot assign requested address")));
  const int fd = ListenAt("taken.sock");
  EXPECT_THAT(message("unix:taken.sock"),
              AllOf(HasSubstr("unix:taken.sock"), HasSubstr("answers")));
  close(fd);
}

TEST_F(SocketFileTest, AcceptsAMissingFile) {
  EXPECT_TRUE(RemoveStaleSocket("none.sock").ok());
}

TEST_F(SocketFileTest, RemovesASocketLeftBehind) {
  const std::string path = "stale.sock";
  close(ListenAt(path));
  ASSERT_TRUE(Exists(path));
  EXPECT_TRUE(RemoveStaleSocket(path).ok());
  EXPECT_FALSE(Exists(path));
}

TEST_F(SocketFileTest, KeepsASocketThatAnswers) {
  const std::string path = "alive.sock";
  const int fd = ListenAt(path);
  const absl::Status status = RemoveStaleSocket(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_TRUE(Exists(path));
  close(fd);
  unlink(path.c_str());
}

TEST_F(SocketFileTest, KeepsAFile) {
  const std::string path = "file.sock";
  std::ofstream(path) << "precious";
  EXPECT_EQ(RemoveStaleSocket(path).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Exists(path));
}

TEST_F(SocketFileTest, RefusesAPathTooLongForASocket) {
  EXPECT_EQ(RemoveStaleSocket("/" + std::string(200, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SocketFileTest, ListensForOwnerAndGroupAndRemovesItsFile) {
  auto sockets = OpenListenSockets("unix:own.sock");
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  struct stat found;
  ASSERT_EQ(stat("own.sock", &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0660u);
  EXPECT_TRUE(ConnectTo(*sockets).ok());
  sockets->RemoveFile();
  EXPECT_FALSE(Exists("own.sock"));
  EXPECT_EQ(ConnectTo(*sockets).status().code(), absl::StatusCode::kNotFound);
  // Not the file of another server, which has taken its place.
  const int other = ListenAt("own.sock");
  sockets->RemoveFile();
  EXPECT_TRUE(Exists("own.sock"));
  close(other);
  unlink("own.sock");
}

TEST(ListenSocketsTest, TheSystemChoosesThePort) {
  for (const char* host : {"127.0.0.1:", "localhost:", "0.0.0.0:"}) {
    const auto sockets = OpenListenSockets(absl::StrCat(host, 0));
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    EXPECT_THAT(sockets->address, StartsWith(host));
    EXPECT_NE(sockets->address, absl::StrCat(host, 0));
    EXPECT_TRUE(ConnectTo(*sockets).ok());
    const auto taken = OpenListenSockets(sockets->address);
    EXPECT_EQ(taken.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(taken.status().message()),
                AllOf(HasSubstr(sockets->address), HasSubstr("in use")));
  }
}

sockaddr_storage Address6(const char* text) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(4711);
  EXPECT_EQ(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  sockaddr_storage storage = {};
  std::memcpy(&storage, &address, sizeof(address));
  return storage;
}

TEST(NumericAddressTest, NamesAddressesAndPeers) {
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = htons(80);
  four.sin_addr.s_addr = htonl(0x0A000001);
  sockaddr_storage storage = {};
  std::memcpy(&storage, &four, sizeof(four));
  EXPECT_EQ(ToNumeric(storage).text, "10.0.0.1:80");
  EXPECT_EQ(ToNumeric(storage).peer_key, "10.0.0.1");
  EXPECT_EQ(ToNumeric(Address6("::ffff:10.0.0.1")).text, "10.0.0.1:4711");
  EXPECT_EQ(ToNumeric(Address6("::ffff:10.0.0.1")).peer_key, "10.0.0.1");
  EXPECT_EQ(ToNumeric(Address6("2001:db8::1:2")).text, "[2001:db8::1:2]:4711");
  // One host may have all addresses of a /64.
  EXPECT_EQ(ToNumeric(Address6("2001:db8::1:2")).peer_key, "2001:db8::/64");
}

}  // namespace
}  // namespace ballast
