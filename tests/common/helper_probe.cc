// A helper that does what a test asks it to (helper_probe.h).

#include "tests/common/helper_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "common/helper_program.h"

namespace ballast {
namespace {

// The errno of a deed that a helper in its box must not do; 0: it was done.
int Try(const std::string& deed) {
  errno = 0;
  long result = 0;
  if (deed == "open") {
    result = open("/proc/self/status", O_RDONLY);
  } else if (deed == "create") {
    result = open("/tmp/ballast-helper-probe", O_WRONLY | O_CREAT, 0600);
  } else if (deed == "unlink") {
    result = unlink("/tmp/ballast-helper-probe");
  } else if (deed == "socket") {
    result = socket(AF_INET, SOCK_STREAM, 0);
  } else if (deed == "unix socket") {
    result = socket(AF_UNIX, SOCK_STREAM, 0);
  } else if (deed == "fork") {
    result = fork();
    if (result == 0) _exit(0);
  } else if (deed == "exec") {
    char* const arguments[] = {nullptr};
    result = execve("/bin/true", arguments, arguments);
  } else if (deed == "signal") {
    result = kill(getppid(), 0);
  } else if (deed == "ptrace") {
    result = ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  } else if (deed == "memfd") {
    result = memfd_create("probe", 0);
  } else if (deed == "io_uring") {
    result = syscall(SYS_io_uring_setup, 1, nullptr);
  } else if (deed == "fcntl") {
    result = fcntl(kHelperSocket, F_SETOWN, getppid());
  }
  return result < 0 ? errno : 0;
}

[[noreturn]] void TakeMemory() {
  while (malloc(size_t{64} << 20) != nullptr) {
  }
  ExitForMemory(size_t{64} << 20);
}

std::string ReadFd(int fd) {
  char bytes[64];
  const ssize_t got = pread(fd, bytes, sizeof(bytes), 0);
  close(fd);
  return got < 0 ? "" : std::string(bytes, static_cast<size_t>(got));
}

bool AnswerNext() {
  uint32_t kind = 0;
  std::string body;
  int fds[2] = {-1, -1};
  if (!ReadRequest(&kind, &body, fds, 2)) return false;
  switch (kind) {
    case kEcho:
      return WriteAnswer(0, body);
    case kTry:
      return WriteAnswer(0, std::to_string(Try(body)));
    case kReadFd:
      return WriteAnswer(0, ReadFd(fds[0]));
    case kGetVariable: {
      const char* const value = getenv(body.c_str());
      return WriteAnswer(0, value == nullptr ? "" : value);
    }
    case kForkProbe: {
      const pid_t child = ForkHelper(fds[0], fds[1]);
      return child == 0 || WriteAnswer(0, std::to_string(child));
    }
    case kTrap:
      __builtin_trap();
    case kExit:
      _exit(atoi(body.c_str()));
    case kSpin:
      LimitProcessorTime(1);
      while (true) clock();
    case kWork: {
      char byte;
      while (read(fds[0], &byte, 1) < 0) {
      }
      return WriteAnswer(0, "");
    }
    case kTakeMemory:
      TakeMemory();
    case kManyBytes:
      return WriteAnswer(0, std::string(1 << 20, 'x'));
  }
  return false;
}

}  // namespace
}  // namespace ballast

int main() {
  ballast::EnterBox({ballast::kProbeMemory, /*may_fork=*/true});
  while (ballast::AnswerNext()) {
  }
  _exit(0);
}
