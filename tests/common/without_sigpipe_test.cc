#include "common/without_sigpipe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(WithoutSigpipeTest, AWriteToAClosedSocketFailsAndEndsNoProcess) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  close(ends[1]);
  {
    const WithoutSigpipe without_sigpipe;
    EXPECT_EQ(write(ends[0], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace ballast
