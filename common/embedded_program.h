#ifndef BALLAST_COMMON_EMBEDDED_PROGRAM_H_
#define BALLAST_COMMON_EMBEDDED_PROGRAM_H_

#include <sys/types.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/owned_fd.h"

namespace ballast {

// A program that this one holds as bytes (bazel/embedded_program.bzl): both are
// always of one build, and there is one file to install. It runs libraries that
// should not, or cannot, be linked into a server (docs/decisions/0011, 0041).
struct EmbeddedProgram {
  const char* name;  // of its process, and in errors
  const unsigned char* image;
  size_t bytes;
};

// The descriptor of the socket that the program is started with.
inline constexpr int kControlFd = 3;

// Connected stream sockets, closed on exec. Errors: UNAVAILABLE.
absl::StatusOr<std::pair<OwnedFd, OwnedFd>> SocketPair();

// Starts the program from memory with `control` as kControlFd; it inherits
// nothing else from us except stderr, and no signal is blocked or ignored. Its
// standard input and output are /dev/null. The caller reaps the process; a
// program whose libraries cannot be loaded exits with status 127. Errors:
// UNAVAILABLE (no descriptor, memory or process; vm.memfd_noexec=2).
absl::StatusOr<pid_t> StartEmbeddedProgram(const EmbeddedProgram& program,
                                           OwnedFd control);

// Kills the process and reaps it. Does nothing if *process is -1, and makes it
// so. Returns the status of waitpid, 0 if there was none.
int EndProcess(pid_t* process);

// Waits for the process to end by itself and reaps it, and makes *process -1.
// Returns the status of waitpid.
int ReapProcess(pid_t* process);

}  // namespace ballast

#endif  // BALLAST_COMMON_EMBEDDED_PROGRAM_H_
