#include "common/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// The manager's socket, in the abstract namespace.
class ServiceManagerTest : public ::testing::Test {
 protected:
  ServiceManagerTest() {
    const std::string name = absl::StrCat("@ballast-test-", getpid());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
    socket_ = socket(AF_UNIX, SOCK_DGRAM, 0);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   offsetof(sockaddr_un, sun_path) + name.size()),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~ServiceManagerTest() override {
    close(socket_);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
  }

  std::string Receive() {
    char buffer[256];
    const ssize_t bytes = recv(socket_, buffer, sizeof(buffer), 0);
    return std::string(buffer, bytes < 0 ? 0 : bytes);
  }

  int socket_ = -1;
};

TEST_F(ServiceManagerTest, ANotificationIsOneDatagram) {
  NotifyServiceManager("READY=1\nSTATUS=serving");
  NotifyReloading();
  EXPECT_EQ(Receive(), "READY=1\nSTATUS=serving");
  EXPECT_THAT(Receive(),
              ::testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
}

TEST_F(ServiceManagerTest, WithoutAManagerNothingHappens) {
  unsetenv("NOTIFY_SOCKET");
  NotifyServiceManager("READY=1");
  setenv("NOTIFY_SOCKET", "relative", 1);
  NotifyServiceManager("READY=1");
  setenv("NOTIFY_SOCKET", ("/" + std::string(200, 'x')).c_str(), 1);
  NotifyServiceManager("READY=1");
  setenv("NOTIFY_SOCKET", "/no/such/socket", 1);
  NotifyServiceManager("READY=1");
}

TEST_F(ServiceManagerTest, TheWatchdogIsForOneProcess) {
  EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(WatchdogTimeout(), absl::Seconds(30));
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  EXPECT_EQ(WatchdogTimeout(), absl::Seconds(30));
  setenv("WATCHDOG_PID", absl::StrCat(getppid()).c_str(), 1);
  EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  unsetenv("WATCHDOG_PID");
  for (const char* none : {"0", "", "soon"}) {
    setenv("WATCHDOG_USEC", none, 1);
    EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  }
}

}  // namespace
}  // namespace ballast
