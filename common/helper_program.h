#ifndef BALLAST_COMMON_HELPER_PROGRAM_H_
#define BALLAST_COMMON_HELPER_PROGRAM_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <string>

// The inside of a helper: a program that runs a library which should not, or
// cannot, be part of the server, on bytes that nobody trusts. HelperProcess
// (helper_process.h) starts it and talks to it. Uses the C library alone, since
// a helper may not be able to link anything else.
namespace ballast {

// Whether this program is built with AddressSanitizer or ThreadSanitizer.
#if defined(BALLAST_ASAN) || defined(BALLAST_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// The descriptors that a helper starts with: the stream socket of its requests,
// and a pipe that it only holds. When the other end of the pipe closes, however
// the server ends, the kernel kills the helper.
inline constexpr int kHelperSocket = 3;
inline constexpr int kHelperLifeline = 4;

// Every request and answer is a HelperFrame and `bytes` bytes. `kind` belongs
// to the program. Both ends are from one build and on one machine: numbers are
// in native byte order.
struct HelperFrame {
  uint32_t kind;
  uint32_t unused;
  uint64_t bytes;
};

// Exit statuses that say why a helper cannot answer. 127 is the dynamic
// loader's.
inline constexpr int kExitNoLibraries = 127;
inline constexpr int kExitNoMemory = 121;     // the machine has too little
inline constexpr int kExitMemoryLimit = 122;  // the helper's own limit

// The most descriptors that travel with a frame.
inline constexpr size_t kMaxPassedFds = 4;

// Whether this kernel can put a helper into its box.
bool CanBoxHelpers();

struct HelperBox {
  // The most address space that the process may take.
  uint64_t memory = 0;
  // Whether it may call ForkHelper.
  bool may_fork = false;
};

// Call first in main(): from here on the process has no way out but its socket.
//   - It ignores SIGHUP, SIGINT and SIGTERM: a terminal or a service manager
//     sends them to a whole group, and the server still drains.
//   - It holds no descriptor other than the two above and /dev/null, has no
//   core
//     dump, writes no file, and takes at most box.memory.
//   - A seccomp filter admits memory, time, and reading and writing of open
//     descriptors; every other system call fails with EPERM: opening a file, a
//     socket, a process, a signal to another process. No new privileges. Where
//     the kernel has no seccomp (CanBoxHelpers), and in sanitized builds, there
//     is no filter.
void EnterBox(const HelperBox& box);

// The filter of EnterBox for `process`, as struct sock_filter: for a program
// that closes its box itself. "" where the kernel has none.
std::string GetBoxFilter(pid_t process);

// Forks another helper, which serves `socket`, and returns its number. Returns
// 0 in the new process, whose descriptors are kHelperSocket (`socket`) and
// kHelperLifeline (`lifeline`) as after a start, and which may not fork. The
// server is its parent, and learns how it ends. Returns -1 after an error, with
// errno. For a process with one thread. Takes both descriptors.
pid_t ForkHelper(int socket, int lifeline);

// Limits the processor time of a request, after which SIGPROF ends the process;
// 0: no limit.
void LimitProcessorTime(uint64_t seconds);

// Ends the process after an allocation of at most `largest` bytes has failed,
// and says whose memory ran out: the machine's (kExitNoMemory), or what
// box.memory allows (kExitMemoryLimit).
[[noreturn]] void ExitForMemory(size_t largest);

// Reads one request. Fills `fds` with up to `most` descriptors that came with
// it, owned by the caller, and *count with their number. Blocks. Returns false
// when the server has closed its end.
bool ReadRequest(uint32_t* kind, std::string* body, int* fds = nullptr,
                 size_t most = 0, size_t* count = nullptr);

// A piece of an answer.
struct HelperBytes {
  const void* data;
  size_t size;
};

// Writes one answer of `count` pieces. Blocks. Returns false when the server
// has closed its end.
bool WriteAnswer(uint32_t kind, const HelperBytes* pieces, size_t count);
bool WriteAnswer(uint32_t kind, const std::string& body);

}  // namespace ballast

#endif  // BALLAST_COMMON_HELPER_PROGRAM_H_
