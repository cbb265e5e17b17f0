#include "common/helper_program.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ballast {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;  // no filter
#endif

// Flags that make the new process the server's child; glibc's fork() has none.
constexpr unsigned long kForkFlags = CLONE_PARENT | SIGCHLD;

// System calls without an effect outside the process and its descriptors. None
// makes a descriptor of a name, a process, or something that acts later
// (io_uring, timers by signal of another process).
constexpr uint32_t kAllowed[] = {
    // Memory.
    SYS_brk,
    SYS_madvise,
    SYS_mmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_munmap,
    SYS_membarrier,
    // Descriptors that are open. No fcntl or ioctl: both can send signals.
    SYS_close,
    SYS_dup3,
    SYS_fstat,
    SYS_lseek,
    SYS_pread64,
    SYS_preadv,
    SYS_pwrite64,
    SYS_read,
    SYS_readv,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_write,
    SYS_writev,
    SYS_ppoll,
#ifdef SYS_poll
    SYS_poll,
#endif
    // Time and the processor.
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_gettimeofday,
    SYS_getitimer,
    SYS_setitimer,
    SYS_nanosleep,
    SYS_sched_getaffinity,
    SYS_sched_yield,
    SYS_getcpu,
#ifdef SYS_time
    SYS_time,
#endif
    // The process itself.
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_getpid,
    SYS_getppid,
    SYS_getrandom,
    SYS_getrusage,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_restart_syscall,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_uname,
    SYS_sysinfo,
    SYS_set_robust_list,
#ifdef SYS_rseq
    SYS_rseq,
#endif
};
constexpr size_t kAllowedCount = sizeof(kAllowed) / sizeof(kAllowed[0]);

// A program for seccomp, written instruction by instruction.
struct Filter {
  void Add(uint16_t code, uint32_t k, uint8_t if_true = 0,
           uint8_t if_false = 0) {
    code_[count_++] = {code, if_true, if_false, k};
  }
  void Load(size_t offset) {
    Add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
  }
  void Return(uint32_t action) { Add(BPF_RET | BPF_K, action); }
  // Skips the next `skip` instructions unless the loaded word is `value`.
  void SkipUnless(uint32_t value, uint8_t skip) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
  }
  // After the number was loaded.
  void Allow(uint32_t number) {
    SkipUnless(number, 1);
    Return(SECCOMP_RET_ALLOW);
  }
  // After the number was loaded. Allows the call with this first argument;
  // loads other words, so it is followed by instructions that load the number
  // again.
  void AllowWith(uint32_t number, uint32_t argument) {
    constexpr size_t kLow = offsetof(seccomp_data, args);  // little-endian
    SkipUnless(number, 5);
    Load(kLow);
    SkipUnless(argument, 3);
    Load(kLow + 4);
    SkipUnless(0, 1);
    Return(SECCOMP_RET_ALLOW);
    Load(offsetof(seccomp_data, nr));
  }
  std::string Bytes() const {
    return std::string(reinterpret_cast<const char*>(code_),
                       count_ * sizeof(code_[0]));
  }
  void Install() {
    const sock_fprog program = {static_cast<unsigned short>(count_), code_};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  }

 private:
  static constexpr size_t kMaxCount = 2 * kAllowedCount + 64;
  sock_filter code_[kMaxCount];
  size_t count_ = 0;
};

void Begin(Filter* filter) {
  filter->Load(offsetof(seccomp_data, arch));
  filter->Add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  filter->Return(SECCOMP_RET_KILL_PROCESS);
  filter->Load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
  // Numbers of the x32 interface.
  constexpr uint32_t kX32Bit = 0x40000000;
  filter->Add(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1);
  filter->Return(SECCOMP_RET_KILL_PROCESS);
#endif
}

Filter MakeFilter(pid_t process, bool may_fork) {
  Filter filter;
  Begin(&filter);
  for (const uint32_t number : kAllowed) filter.Allow(number);
  // abort() sends a signal to its own process. In a process that was forked it
  // fails, and abort() then ends it by an illegal instruction.
  filter.AllowWith(SYS_tgkill, static_cast<uint32_t>(process));
  // malloc's arenas and getrlimit(): the limits of this process.
  filter.AllowWith(SYS_prlimit64, 0);
  if (may_fork) {
    filter.AllowWith(SYS_clone, kForkFlags);
    filter.AllowWith(SYS_prctl, PR_SET_SECCOMP);  // ForbidForks
  }
  filter.Return(SECCOMP_RET_ERRNO | EPERM);
  return filter;
}

void InstallFilter(bool may_fork) {
  if (kArchitecture == 0 || kSanitized) return;
  MakeFilter(getpid(), may_fork).Install();
}

// On top of the filter of the process that forked this one: the strictest wins.
void ForbidForks() {
  if (kArchitecture == 0 || kSanitized) return;
  Filter filter;
  Begin(&filter);
  filter.SkipUnless(SYS_clone, 1);
  filter.Return(SECCOMP_RET_ERRNO | EPERM);
  filter.Return(SECCOMP_RET_ALLOW);
  filter.Install();
}

void LimitResources(uint64_t memory) {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // Sanitizers reserve terabytes of address space, and report to stderr, which
  // may be a file.
  if (kSanitized) return;
  setrlimit(RLIMIT_FSIZE, &none);
  const rlimit space = {memory, memory};
  setrlimit(RLIMIT_AS, &space);
}

// Reasons go with the answers; what libraries write of hostile bytes would
// flood the server's log.
void CloseStandardError() {
  if (kSanitized) return;
  const int null = open("/dev/null", O_WRONLY);
  if (null < 0) return;
  dup2(null, STDERR_FILENO);
  if (null != STDERR_FILENO) close(null);
}

bool ReadAll(void* to, size_t size) {
  char* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = read(kHelperSocket, next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(const void* from, size_t size) {
  const char* next = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = send(kHelperSocket, next, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    next += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

// Takes the descriptors of a message; closes those above `most`.
size_t TakeFds(msghdr* message, int* fds, size_t most) {
  size_t count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t arrived = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < arrived; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      if (count < most) {
        fds[count++] = fd;
      } else {
        close(fd);
      }
    }
  }
  return count;
}

}  // namespace

bool CanBoxHelpers() {
  uint32_t action = SECCOMP_RET_ERRNO;
  return kArchitecture != 0 &&
         syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

std::string GetBoxFilter(pid_t process) {
  if (!CanBoxHelpers()) return "";
  return MakeFilter(process, /*may_fork=*/false).Bytes();
}

void EnterBox(const HelperBox& box) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    ::signal(signal, SIG_IGN);
  }
  close_range(kHelperLifeline + 1, ~0U, 0);
  CloseStandardError();
  LimitResources(box.memory);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  InstallFilter(box.may_fork);
}

pid_t ForkHelper(int socket, int lifeline) {
  // Not through glibc: it offers no CLONE_PARENT. Nothing of it is stale in the
  // new process but the thread's number, which raise() asks the kernel for.
  const auto child = static_cast<pid_t>(
      syscall(SYS_clone, kForkFlags, nullptr, nullptr, nullptr, nullptr));
  const int error = errno;
  if (child == 0) {
    syscall(SYS_dup3, socket, kHelperSocket, O_CLOEXEC);
    syscall(SYS_dup3, lifeline, kHelperLifeline, O_CLOEXEC);
    close(socket);
    close(lifeline);
    ForbidForks();
    return 0;
  }
  close(socket);
  close(lifeline);
  errno = error;
  return child;
}

void LimitProcessorTime(uint64_t seconds) {
  itimerval limit = {};
  limit.it_value.tv_sec = static_cast<time_t>(seconds);
  setitimer(ITIMER_PROF, &limit, nullptr);
}

void ExitForMemory(size_t largest) {
  // Such a mapping is counted against the limit, and takes no memory.
  void* const mapped = mmap(nullptr, largest, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  _exit(mapped == MAP_FAILED ? kExitMemoryLimit : kExitNoMemory);
}

bool ReadRequest(uint32_t* kind, std::string* body, int* fds, size_t most,
                 size_t* count) {
  HelperFrame frame = {};
  iovec bytes = {&frame, sizeof(frame)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMaxPassedFds)];
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  ssize_t got;
  do {
    got = recvmsg(kHelperSocket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  const size_t arrived = TakeFds(&message, fds, most);
  if (count != nullptr) *count = arrived;
  if (!ReadAll(reinterpret_cast<char*>(&frame) + got,
               sizeof(frame) - static_cast<size_t>(got))) {
    return false;
  }
  *kind = frame.kind;
  body->resize(frame.bytes);
  return ReadAll(body->data(), body->size());
}

bool WriteAnswer(uint32_t kind, const HelperBytes* pieces, size_t count) {
  HelperFrame frame = {kind, 0, 0};
  for (size_t i = 0; i < count; ++i) frame.bytes += pieces[i].size;
  if (!WriteAll(&frame, sizeof(frame))) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!WriteAll(pieces[i].data, pieces[i].size)) return false;
  }
  return true;
}

bool WriteAnswer(uint32_t kind, const std::string& body) {
  const HelperBytes piece = {body.data(), body.size()};
  return WriteAnswer(kind, &piece, 1);
}

}  // namespace ballast
