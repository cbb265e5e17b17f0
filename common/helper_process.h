#ifndef BALLAST_COMMON_HELPER_PROCESS_H_
#define BALLAST_COMMON_HELPER_PROCESS_H_

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/instruments.h"
#include "common/small_file.h"

namespace ballast {

// The bytes of a struct of a helper's protocol, which stays owned by the
// caller.
template <typename T>
absl::string_view GetBytes(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Moves such a struct from the front of an answer to `value`. False, and
// nothing is taken: the answer is too short.
template <typename T>
bool Take(absl::string_view* from, T* value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from->size() < sizeof(T)) return false;
  std::memcpy(value, from->data(), sizeof(T));
  from->remove_prefix(sizeof(T));
  return true;
}

// Why a helper ended before its HelperProcess did.
enum class HelperEnd {
  kCrash,          // a fault signal, or an unexpected exit
  kProcessorTime,  // the request took more than it may
  kSilence,        // ended by us: neither a word nor work for too long
  kAnswer,         // ended by us: an answer that contradicts itself
  kKilled,         // from outside, as when the machine's memory runs out
  kAbandoned,      // ended by us: the answer was no longer wanted
  kLibraries,      // its libraries cannot be loaded
  kNoMemory,       // the machine gave it no memory
  kMemoryLimit,    // the request took more than the helper may
};
inline constexpr size_t kHelperEnds = 9;

// Names for metrics and messages, in the order of HelperEnd.
inline constexpr std::array<const char*, kHelperEnds> kHelperEndNames = {
    "crash",     "processor_time", "silence",   "answer",      "killed",
    "abandoned", "libraries",      "no_memory", "memory_limit"};

// How a process whose status waitid(2) gave as `code` (CLD_EXITED, ...) and
// `status` has ended. A status that cannot be known (`code` 0) is kKilled: only
// what the process did itself is a crash. Pure.
HelperEnd GetHelperEnd(int code, int status);

// Starts and ends of helpers. Thread-safe.
struct HelperCounters {
  Counter starts;
  std::array<Counter, kHelperEnds> ends;

  void AddEnd(HelperEnd end) { ends[static_cast<size_t>(end)].Add(); }
};

// The code of a helper (helper_program.h).
struct HelperProgram {
  const char* name;  // of its process, and in errors
  // The program as bytes (bazel/embedded_program.bzl): both are always from one
  // build, and there is one file to install.
  const unsigned char* image = nullptr;
  size_t bytes = 0;
  // If `image` is null: the absolute path of its file, and its arguments.
  std::string path = {};
  std::vector<std::string> arguments = {};
  // Variables of its environment, "NAME=VALUE", in addition to the inherited
  // ones that a helper may have.
  std::vector<std::string> variables = {};
};

// The folder of a package's libraries for its helpers: ../lib/ballast/helpers
// from the folder of `program`, as in the wheel and the tarball. Only the
// loader of helpers looks there, and it looks there first. "" if there is no
// such folder: helpers then use the system's libraries.
std::string GetHelperLibraries(absl::string_view program);

// Options::libraries of a program that comes as bytes: `what` cannot be done,
// and the packages of Debian 12 that have what it needs.
std::string HelperLibrariesAdvice(absl::string_view what,
                                  absl::string_view packages);

// A process and our ends of what it was started with.
struct HelperChild {
  pid_t process = -1;
  OwnedFd socket;
  OwnedFd lifeline;  // when it closes, the kernel kills the process
};

// The descriptors of a helper: our ends and the helper's.
struct HelperChannel {
  HelperChild ours;  // without a process
  OwnedFd socket;
  OwnedFd lifeline;
};

// Errors: UNAVAILABLE (no descriptor).
absl::StatusOr<HelperChannel> MakeHelperChannel();

// Makes the process die with us, however we end. `lifeline` is its end. Errors:
// UNAVAILABLE (it is not a child of ours).
absl::Status TieHelper(pid_t process, const OwnedFd& lifeline);

// Starts the program. It inherits nothing else from us but stderr and the
// variables of the environment that its loader and sanitizers read; a program
// of bytes also gets GetHelperLibraries of this process's program. Its working
// directory is "/": ours may be a folder of data, and loaders and interpreters
// look for code there. No signal is blocked or ignored. Errors: UNAVAILABLE (no
// descriptor, memory or process; vm.memfd_noexec=2).
absl::StatusOr<HelperChild> StartHelper(const HelperProgram& program);

// A helper and the requests to it, by one thread at a time. Starts the process
// when it is first needed and again after it has ended, ends it with this
// object, and says how it ended. Calls block. Thread-compatible.
//
// The end of the process decides what an error means. A process that has
// answered before may have ended because of an earlier request. So the request
// runs again in a new process, whose end counts:
//   - the request's fault (Options::input_fault): two crashes, the helper's own
//     limit of memory. The same request ends like this on every machine.
//   - UNAVAILABLE: killed from outside, no memory, silence; in any process, the
//     limit of processor time, which depends on the machine. May pass.
//   - FAILED_PRECONDITION: its libraries cannot be loaded here.
// So a request starts at most two processes, whatever happens to them.
class HelperProcess {
 public:
  using Launch = std::function<absl::StatusOr<HelperChild>()>;

  struct Options {
    // Begins the messages: "the video decoder".
    std::string name;
    // Advice if the libraries cannot be loaded, as a sentence.
    std::string libraries;
    // Makes the error of a request that is at fault itself; INVALID_ARGUMENT if
    // empty. The argument follows `name` in the message.
    std::function<absl::Status(absl::string_view message)> input_fault = {};
    // The longest time in which the process neither reads, writes nor uses
    // processor time during a request; then it is killed. Helpers limit the
    // processor time of a request themselves, so every request ends.
    absl::Duration patience = absl::Seconds(60);
    // Counts starts and ends; not owned, may be null.
    HelperCounters* counters = nullptr;
    // The first exchange with each new process.
    std::function<absl::Status(HelperProcess*)> prepare = {};
    // Waits for the process's socket; in tests, by their own clock.
    std::function<int(pollfd* socket, int milliseconds)> wait =
        [](pollfd* socket, int milliseconds) {
          return poll(socket, 1, milliseconds);
        };
  };

  // Starts nothing yet. `launch` starts a process: StartHelper, or by asking
  // another helper to fork one (ForkHelper).
  HelperProcess(Options options, Launch launch)
      : options_(std::move(options)), launch_(std::move(launch)) {}
  ~HelperProcess() { End(); }
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // Runs `exchange`, which sends one request and receives its answers, with a
  // process that runs; again if that ends, as above. Errors: as above; of
  // Launch and Options::prepare; of `exchange`, if the process still runs or
  // `exchange` has called Stop. Then no answer may be left unread.
  using Exchange = absl::FunctionRef<absl::Status()>;
  absl::Status Ask(Exchange exchange);

  // For use in an exchange, whose error they are: ABORTED (the process has
  // ended, or was ended for its silence).
  // Sends a frame of `kind` with the parts one after another; copies of `fds`
  // go with it.
  absl::Status Send(uint32_t kind,
                    std::initializer_list<absl::string_view> parts,
                    absl::Span<const int> fds = {});
  // Receives a frame. Stop(kAnswer) and the request's fault, if it has more
  // than `most` bytes.
  absl::Status Receive(uint64_t most, uint32_t* kind, std::string* body);
  // Ends the process for this reason.
  void Stop(HelperEnd why);

  // How the last process that ended in a request did; nullopt: none has.
  std::optional<HelperEnd> last_end() const { return last_end_; }
  // -1 while there is no process.
  pid_t process() const { return child_.process; }
  // Times that a process was started.
  uint64_t starts() const { return starts_; }

 private:
  absl::Status EnsureStarted();
  // Maps the end of the process to the error of the request; OK: ask again.
  absl::Status Judge(HelperEnd end, int code, int status, bool was_new,
                     int* crashes) const;
  absl::Status InputFault(absl::string_view message) const;
  // Waits until the socket is ready for `events`. False: it has been silent.
  bool Await(short events);
  bool Write(const char* from, size_t size, absl::Span<const int> fds);
  bool Read(char* to, size_t size);
  absl::Status Ended();
  void End();

  const Options options_;
  const Launch launch_;
  HelperChild child_;
  uint64_t starts_ = 0;
  std::optional<HelperEnd> last_end_;
  bool is_new_ = false;     // it has not been asked yet
  bool has_ended_ = false;  // found while reading or writing
  bool was_silent_ = false;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_HELPER_PROCESS_H_
