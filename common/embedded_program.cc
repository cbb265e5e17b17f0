#include "common/embedded_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

absl::Status Unavailable(absl::string_view program, absl::string_view what) {
  const int error = errno;
  return absl::UnavailableError(absl::StrCat(
      "the process ", program, ": ", what, ": ", strerrordesc_np(error)));
}

// Opens the program as a file in memory.
absl::StatusOr<OwnedFd> OpenImage(const EmbeddedProgram& program) {
  OwnedFd file(memfd_create(program.name, MFD_CLOEXEC));
  if (file.get() < 0) return Unavailable(program.name, "memfd_create");
  for (size_t done = 0; done < program.bytes;) {
    const ssize_t put =
        write(file.get(), program.image + done, program.bytes - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      return Unavailable(program.name, "writing its program to memory");
    }
    done += static_cast<size_t>(put);
  }
  return file;
}

// Moves `fd` above the first few numbers, which the new process needs.
absl::StatusOr<OwnedFd> MoveUp(const EmbeddedProgram& program, OwnedFd fd) {
  OwnedFd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, kControlFd + 1));
  if (moved.get() < 0) return Unavailable(program.name, "dup");
  return moved;
}

}  // namespace

absl::StatusOr<std::pair<OwnedFd, OwnedFd>> SocketPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Unavailable("to be started", "socketpair");
  }
  return std::make_pair(OwnedFd(ends[0]), OwnedFd(ends[1]));
}

absl::StatusOr<pid_t> StartEmbeddedProgram(const EmbeddedProgram& program,
                                           OwnedFd control) {
  BALLAST_ASSIGN_OR_RETURN(OwnedFd low_image, OpenImage(program));
  BALLAST_ASSIGN_OR_RETURN(const OwnedFd image,
                           MoveUp(program, std::move(low_image)));
  BALLAST_ASSIGN_OR_RETURN(const OwnedFd socket,
                           MoveUp(program, std::move(control)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, socket.get(), kControlFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::string path = absl::StrCat("/proc/self/fd/", image.get());
  std::string name = program.name;
  char* const arguments[] = {name.data(), nullptr};
  pid_t process = -1;
  errno = posix_spawn(&process, path.c_str(), &actions, &attributes, arguments,
                      environ);
  const bool spawned = errno == 0;
  absl::Status status;
  if (!spawned) status = Unavailable(program.name, "starting it from memory");
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (!spawned) return status;
  return process;
}

int EndProcess(pid_t* process) {
  if (*process < 0) return 0;
  kill(*process, SIGKILL);
  return ReapProcess(process);
}

int ReapProcess(pid_t* process) {
  int status = 0;
  while (*process >= 0 && waitpid(*process, &status, 0) < 0 && errno == EINTR) {
  }
  *process = -1;
  return status;
}

}  // namespace ballast
