#include "common/helper_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/helper_program.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Crashes of new processes that make a request at fault.
constexpr int kMaxCrashes = 2;
// A killed process is gone within milliseconds, unless the kernel waits for a
// file system that hangs.
constexpr absl::Duration kKillTime = absl::Seconds(1);
// A process that ends by itself also gives its memory back.
constexpr absl::Duration kExitTime = absl::Seconds(10);
// Processor time that counts as work, in each quarter of the patience.
constexpr absl::Duration kWork = absl::Milliseconds(1);

absl::Status Unavailable(absl::string_view name, absl::string_view what) {
  const int error = errno;
  return absl::UnavailableError(absl::StrCat("the process ", name, ": ", what,
                                             ": ", strerrordesc_np(error)));
}

// Opens the program as a file in memory.
absl::StatusOr<OwnedFd> OpenImage(const HelperProgram& program) {
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

// Moves `fd` above the numbers that the new process needs.
absl::StatusOr<OwnedFd> MoveUp(const HelperProgram& program, OwnedFd fd) {
  OwnedFd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, kHelperLifeline + 1));
  if (moved.get() < 0) return Unavailable(program.name, "dup");
  return moved;
}

// Not the others: they may hold keys and tokens.
bool IsForHelpers(absl::string_view variable) {
  const absl::string_view name = variable.substr(0, variable.find('='));
  return absl::StartsWith(name, "LD_") || absl::StartsWith(name, "MALLOC_") ||
         absl::StartsWith(name, "GLIBC_") ||
         absl::EndsWith(name, "SAN_OPTIONS");
}

// LD_LIBRARY_PATH with `folder` before what it is here. Only one such variable
// may be given: the loader takes the last.
std::string LibraryPath(absl::string_view folder) {
  const char* const inherited = getenv("LD_LIBRARY_PATH");
  return absl::StrCat("LD_LIBRARY_PATH=", folder,
                      inherited != nullptr && *inherited != '\0' ? ":" : "",
                      inherited != nullptr ? inherited : "");
}

struct Spawn {
  Spawn() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Spawn() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

// Processes that were killed and have not ended yet.
struct Unreaped {
  Mutex mutex;
  std::vector<pid_t> processes ABSL_GUARDED_BY(mutex);
};

Unreaped& TheUnreaped() {
  static Unreaped* const unreaped = new Unreaped;
  return *unreaped;
}

// Whether the process has ended; if so, reaps it. *code and *status are 0 if
// somebody else has, or SIGCHLD is ignored.
bool TryReap(pid_t process, int* code, int* status) {
  siginfo_t info = {};
  int result;
  do {
    result = waitid(P_PID, process, &info, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  *code = result == 0 ? info.si_code : 0;
  *status = result == 0 ? info.si_status : 0;
  return result != 0 || info.si_pid == process;
}

// Waits at most `time` for the process to end, and reaps it. Returns false if
// it has not ended.
bool Reap(pid_t process, absl::Duration time, int* code, int* status) {
  const OwnedFd handle(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  const absl::Time end = absl::Now() + time;
  while (!TryReap(process, code, status)) {
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    if (handle.get() >= 0) {
      pollfd ended = {handle.get(), POLLIN, 0};
      poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    } else {
      absl::SleepFor(absl::Milliseconds(1));  // a kernel before 5.3
    }
  }
  return true;
}

// Kills the process and reaps it; if it does not end, ReapLateOnes does.
void KillAndReap(pid_t process, int* code, int* status) {
  kill(process, SIGKILL);
  if (Reap(process, kKillTime, code, status)) return;
  MutexLock lock(&TheUnreaped().mutex);
  TheUnreaped().processes.push_back(process);
}

void ReapLateOnes() {
  MutexLock lock(&TheUnreaped().mutex);
  std::erase_if(TheUnreaped().processes, [](pid_t process) {
    int code, status;
    return TryReap(process, &code, &status);
  });
}

// Processor time that the process has used.
absl::Duration ProcessorTime(pid_t process) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(process, &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(time);
}

std::string GetHow(int code, int status) {
  if (code == CLD_EXITED) return absl::StrCat("exit ", status);
  const char* const name = sigabbrev_np(status);
  return name != nullptr ? absl::StrCat("SIG", name)
                         : absl::StrCat("signal ", status);
}

}  // namespace

HelperEnd GetHelperEnd(int code, int status) {
  if (code == CLD_EXITED) {
    switch (status) {
      case kExitNoLibraries:
        return HelperEnd::kLibraries;
      case kExitNoMemory:
        return HelperEnd::kNoMemory;
      case kExitMemoryLimit:
        return HelperEnd::kMemoryLimit;
      default:
        return HelperEnd::kCrash;
    }
  }
  if (code != CLD_KILLED && code != CLD_DUMPED) return HelperEnd::kKilled;
  switch (status) {
    case SIGPROF:
    case SIGVTALRM:
    case SIGXCPU:
      return HelperEnd::kProcessorTime;
    case SIGABRT:
    case SIGFPE:
    case SIGILL:
    case SIGSEGV:
    case SIGSYS:
    case SIGTRAP:
      return HelperEnd::kCrash;
    default:
      // SIGBUS, too: the kernel found no page for shared memory.
      return HelperEnd::kKilled;
  }
}

std::string GetHelperLibraries(absl::string_view program) {
  const size_t slash = program.rfind('/');
  const size_t above = slash == 0 || slash == program.npos
                           ? program.npos
                           : program.rfind('/', slash - 1);
  if (above == program.npos) return "";
  std::string folder =
      absl::StrCat(program.substr(0, above), "/lib/ballast/helpers");
  struct stat found;
  return stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) ? folder
                                                                     : "";
}

std::string HelperLibrariesAdvice(absl::string_view what,
                                  absl::string_view packages) {
  return absl::StrCat(
      what,
      " here: a library cannot be loaded, which the loader's line on the "
      "server's standard error names. Ballast's wheel, tarball and package "
      "bring or require all that is needed: install one of them whole; a "
      "build of your own takes Debian 12's ",
      packages);
}

absl::StatusOr<HelperChannel> MakeHelperChannel() {
  int sockets[2];
  int pipe[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return Unavailable("to be started", "socketpair");
  }
  HelperChannel channel;
  channel.ours.socket = OwnedFd(sockets[0]);
  channel.socket = OwnedFd(sockets[1]);
  if (pipe2(pipe, O_CLOEXEC) != 0) return Unavailable("to be started", "pipe");
  channel.lifeline = OwnedFd(pipe[0]);
  channel.ours.lifeline = OwnedFd(pipe[1]);
  return channel;
}

absl::Status TieHelper(pid_t process, const OwnedFd& lifeline) {
  siginfo_t info;
  if (process <= 0 ||
      waitid(P_PID, process, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return absl::UnavailableError(
        absl::StrCat("process ", process, " is not a helper of this one"));
  }
  // When our end of the pipe closes, the kernel sends SIGKILL instead of the
  // SIGIO of an event. Unlike PR_SET_PDEATHSIG this waits for the end of the
  // whole process, not of the thread that started the helper.
  fcntl(lifeline.get(), F_SETOWN, process);
  fcntl(lifeline.get(), F_SETSIG, SIGKILL);
  fcntl(lifeline.get(), F_SETFL, O_ASYNC);
  return absl::OkStatus();
}

absl::StatusOr<HelperChild> StartHelper(const HelperProgram& program) {
  ReapLateOnes();
  static const bool can_box = [] {
    if (CanBoxHelpers()) return true;
    LogWarning(
        "this kernel has no seccomp: what decodes videos, audio and "
        "SentencePiece text runs with the server's files and network");
    return false;
  }();
  static_cast<void>(can_box);
  BALLAST_ASSIGN_OR_RETURN(HelperChannel channel, MakeHelperChannel());
  OwnedFd image;
  std::string path = program.path;
  if (program.image != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(OwnedFd low, OpenImage(program));
    BALLAST_ASSIGN_OR_RETURN(image, MoveUp(program, std::move(low)));
    path = absl::StrCat("/proc/self/fd/", image.get());
  }
  BALLAST_ASSIGN_OR_RETURN(const OwnedFd socket,
                           MoveUp(program, std::move(channel.socket)));
  BALLAST_ASSIGN_OR_RETURN(const OwnedFd lifeline,
                           MoveUp(program, std::move(channel.lifeline)));
  Spawn spawn;
  posix_spawn_file_actions_addchdir_np(&spawn.actions, "/");
  posix_spawn_file_actions_addopen(&spawn.actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&spawn.actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.actions, socket.get(), kHelperSocket);
  posix_spawn_file_actions_adddup2(&spawn.actions, lifeline.get(),
                                   kHelperLifeline);
  std::string name = program.name;
  std::vector<std::string> texts = program.arguments;
  std::vector<char*> arguments = {name.data()};
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  std::vector<std::string> given = program.variables;
  static const std::string libraries = [] {
    char self[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self));
    return GetHelperLibraries(absl::string_view(
        self, static_cast<size_t>(std::max(bytes, ssize_t{0}))));
  }();
  const bool has_own = program.image != nullptr && !libraries.empty();
  if (has_own) given.push_back(LibraryPath(libraries));
  std::vector<char*> variables;
  for (char** next = environ; *next != nullptr; ++next) {
    if (IsForHelpers(*next) &&
        !(has_own && absl::StartsWith(*next, "LD_LIBRARY_PATH="))) {
      variables.push_back(*next);
    }
  }
  for (std::string& variable : given) variables.push_back(variable.data());
  variables.push_back(nullptr);
  errno = posix_spawn(&channel.ours.process, path.c_str(), &spawn.actions,
                      &spawn.attributes, arguments.data(), variables.data());
  if (errno != 0) return Unavailable(program.name, "starting it");
  BALLAST_RETURN_IF_ERROR(TieHelper(channel.ours.process, lifeline));
  return std::move(channel.ours);
}

absl::Status HelperProcess::EnsureStarted() {
  if (child_.process >= 0) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(child_, launch_());
  ++starts_;
  is_new_ = true;
  has_ended_ = false;
  was_silent_ = false;
  if (options_.counters != nullptr) options_.counters->starts.Add();
  return absl::OkStatus();
}

absl::Status HelperProcess::Ask(Exchange exchange) {
  int crashes = 0;
  while (true) {
    BALLAST_RETURN_IF_ERROR(EnsureStarted());
    const bool was_new = std::exchange(is_new_, false);
    absl::Status answer;
    if (was_new && options_.prepare != nullptr) {
      answer = options_.prepare(this);
      // A process that is not prepared is of no use.
      if (!answer.ok() && !has_ended_) End();
    }
    if (answer.ok()) answer = exchange();
    if (!has_ended_) return answer;
    int code = 0;
    int status = 0;
    child_.socket.Reset();
    if (was_silent_ || !Reap(child_.process, kExitTime, &code, &status)) {
      KillAndReap(child_.process, &code, &status);
    }
    const HelperEnd end =
        was_silent_ ? HelperEnd::kSilence : GetHelperEnd(code, status);
    last_end_ = end;
    child_ = HelperChild();
    if (options_.counters != nullptr) options_.counters->AddEnd(end);
    BALLAST_RETURN_IF_ERROR(Judge(end, code, status, was_new, &crashes));
  }
}

absl::Status HelperProcess::Judge(HelperEnd end, int code, int status,
                                  bool was_new, int* crashes) const {
  switch (end) {
    case HelperEnd::kProcessorTime:
      return absl::UnavailableError(absl::StrCat(
          options_.name,
          " takes more processor time than inputs of this size need on a "
          "machine 20 times as slow; if it does so on other machines, too, "
          "remove the input"));
    case HelperEnd::kLibraries:
      return absl::FailedPreconditionError(options_.libraries);
    default:
      if (!was_new) return absl::OkStatus();
  }
  switch (end) {
    case HelperEnd::kMemoryLimit:
      return InputFault("takes more memory than an input may");
    case HelperEnd::kCrash:
      if (++*crashes < kMaxCrashes) return absl::OkStatus();
      return InputFault(
          absl::StrCat("ended on it twice (", GetHow(code, status), ")"));
    case HelperEnd::kSilence:
      return absl::UnavailableError(absl::StrCat(
          options_.name, " said and did nothing for ",
          absl::FormatDuration(options_.patience),
          " and was ended; is the machine overloaded, its storage slow, or was "
          "the process stopped?"));
    case HelperEnd::kNoMemory:
      return absl::UnavailableError(absl::StrCat(
          options_.name, " got no memory; is the machine out of memory?"));
    default:
      return absl::UnavailableError(
          absl::StrCat(options_.name, " was killed (", GetHow(code, status),
                       "); is the machine out of memory?"));
  }
}

absl::Status HelperProcess::InputFault(absl::string_view message) const {
  const std::string text = absl::StrCat(options_.name, " ", message);
  return options_.input_fault != nullptr ? options_.input_fault(text)
                                         : absl::InvalidArgumentError(text);
}

absl::Status HelperProcess::Ended() {
  has_ended_ = true;
  return absl::AbortedError(absl::StrCat(options_.name, " has ended"));
}

absl::Status HelperProcess::Send(uint32_t kind,
                                 std::initializer_list<absl::string_view> parts,
                                 absl::Span<const int> fds) {
  HelperFrame frame = {kind, 0, 0};
  for (const absl::string_view part : parts) frame.bytes += part.size();
  bool is_sent =
      Write(reinterpret_cast<const char*>(&frame), sizeof(frame), fds);
  for (const absl::string_view part : parts) {
    is_sent = is_sent && Write(part.data(), part.size(), {});
  }
  // The last words of a process that has ended may still be there.
  return is_sent || !was_silent_ ? absl::OkStatus() : Ended();
}

absl::Status HelperProcess::Receive(uint64_t most, uint32_t* kind,
                                    std::string* body) {
  HelperFrame frame;
  if (!Read(reinterpret_cast<char*>(&frame), sizeof(frame))) return Ended();
  if (frame.bytes > most) {
    Stop(HelperEnd::kAnswer);
    return InputFault(absl::StrCat("answered with ", frame.bytes,
                                   " bytes, wanted at most ", most,
                                   "; is the input damaged?"));
  }
  *kind = frame.kind;
  body->resize(frame.bytes);
  return Read(body->data(), body->size()) ? absl::OkStatus() : Ended();
}

bool HelperProcess::Await(short events) {
  const absl::Duration slice =
      std::max(options_.patience / 4, absl::Milliseconds(1));
  absl::Duration worked = absl::InfiniteDuration();  // until it is asked
  for (int idle = 0; idle < 4;) {
    pollfd ready = {child_.socket.get(), events, 0};
    const int polled = options_.wait(
        &ready, static_cast<int>(absl::ToInt64Milliseconds(slice)));
    if (polled > 0) return true;
    if (polled < 0) continue;  // a signal
    const absl::Duration now = ProcessorTime(child_.process);
    idle = now > worked + kWork ? 0 : idle + 1;
    worked = now;
  }
  was_silent_ = true;
  return false;
}

bool HelperProcess::Write(const char* from, size_t size,
                          absl::Span<const int> fds) {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  while (size > 0) {
    iovec bytes = {const_cast<char*>(from), size};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = room;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
    }
    const ssize_t put =
        sendmsg(child_.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
      from += put;
      size -= static_cast<size_t>(put);
      fds = {};
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !Await(POLLOUT)) return false;
  }
  return true;
}

bool HelperProcess::Read(char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(child_.socket.get(), to, size, MSG_DONTWAIT);
    if (got > 0) {
      to += got;
      size -= static_cast<size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || errno != EAGAIN || !Await(POLLIN)) return false;
  }
  return true;
}

void HelperProcess::Stop(HelperEnd why) {
  if (child_.process >= 0 && options_.counters != nullptr) {
    options_.counters->AddEnd(why);
  }
  End();
}

void HelperProcess::End() {
  if (child_.process < 0) return;
  int code, status;
  child_.socket.Reset();
  KillAndReap(child_.process, &code, &status);
  child_ = HelperChild();
}

}  // namespace ballast
