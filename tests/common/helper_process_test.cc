#include "common/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/helper_program.h"
#include "common/status_macros.h"
#include "tests/common/helper_probe.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Absolute: a helper has a working directory of its own.
const std::string kProbe =
    std::filesystem::absolute("tests/common/helper_probe").string();

HelperProcess::Options ProbeOptions() {
  return {.name = "the probe",
          .libraries = "no libraries",
          .input_fault = [](absl::string_view message) {
            return absl::DataLossError(message);
          }};
}

class HelperProcessTest : public ::testing::Test {
 protected:
  explicit HelperProcessTest(HelperProcess::Options options = ProbeOptions())
      : helper_(
            [&] {
              options.counters = &counters_;
              return std::move(options);
            }(),
            [] {
              return StartHelper({.name = "ballast-probe", .path = kProbe});
            }) {}

  // The answer to one request.
  absl::StatusOr<std::string> Ask(uint32_t kind, absl::string_view body = "",
                                  absl::Span<const int> fds = {}) {
    return AskOf(&helper_, kind, body, fds);
  }

  static absl::StatusOr<std::string> AskOf(HelperProcess* helper, uint32_t kind,
                                           absl::string_view body = "",
                                           absl::Span<const int> fds = {}) {
    uint32_t answer_kind = 1;
    std::string answer;
    const absl::Status status = helper->Ask([&]() -> absl::Status {
      BALLAST_RETURN_IF_ERROR(helper->Send(kind, {body}, fds));
      return helper->Receive(uint64_t{1} << 30, &answer_kind, &answer);
    });
    if (!status.ok()) return status;
    EXPECT_EQ(answer_kind, 0u);
    return answer;
  }

  uint64_t Ends(HelperEnd end) const {
    return counters_.ends[static_cast<size_t>(end)].value();
  }

  HelperCounters counters_;
  HelperProcess helper_;
};

TEST_F(HelperProcessTest, OneProcessAnswersRequestsOfAnyLength) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{10} << 20}) {
    std::string body(bytes, 'a');
    if (bytes > 0) body.back() = 'z';
    const auto answer = Ask(kEcho, body);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(*answer == body) << answer->size() << " bytes of " << bytes;
  }
  EXPECT_EQ(helper_.starts(), 1u);
}

TEST_F(HelperProcessTest, TwoCrashesOfNewProcessesAreTheInputsFault) {
  EXPECT_EQ(Ask(kTrap).status(),
            absl::DataLossError("the probe ended on it twice (SIGILL)"));
  EXPECT_EQ(helper_.starts(), 2u);
  // A process that had answered before may have died for its own reasons.
  ASSERT_TRUE(Ask(kEcho).ok());
  EXPECT_EQ(Ask(kExit, "3").status(),
            absl::DataLossError("the probe ended on it twice (exit 3)"));
  EXPECT_EQ(helper_.starts(), 5u);
  EXPECT_EQ(Ends(HelperEnd::kCrash), 5u);
}

TEST_F(HelperProcessTest, ARequestIsRepeatedIfItsProcessHadBeenKilled) {
  ASSERT_TRUE(Ask(kEcho).ok());
  kill(helper_.process(), SIGKILL);
  const auto answer = Ask(kEcho, "again");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "again");
  EXPECT_EQ(Ends(HelperEnd::kKilled), 1u);
}

// Whatever kills each process says nothing of the request.
TEST_F(HelperProcessTest, ARequestWhoseProcessesAreKilledMayPassLater) {
  for (const int signal : {SIGKILL, SIGUSR1, SIGBUS}) {
    const absl::Status status = helper_.Ask([&]() -> absl::Status {
      kill(helper_.process(), signal);
      uint32_t kind;
      std::string body;
      return helper_.Receive(100, &kind, &body);
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("SIG", sigabbrev_np(signal))));
  }
}

// Another machine may be faster.
TEST_F(HelperProcessTest, ProcessorTimeIsNotTheInputsFault) {
  const absl::Status status = Ask(kSpin).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more processor time"));
  EXPECT_EQ(Ends(HelperEnd::kProcessorTime), 1u);
  EXPECT_EQ(helper_.last_end(), HelperEnd::kProcessorTime);
}

TEST_F(HelperProcessTest, TheHelpersLimitOfMemoryIsTheInputsFault) {
  if (kSanitized) GTEST_SKIP() << "sanitizers allow no limit of memory";
  EXPECT_EQ(Ask(kTakeMemory).status(),
            absl::DataLossError("the probe takes more memory than an input "
                                "may"));
}

TEST_F(HelperProcessTest, TheMachinesMemoryIsNot) {
  EXPECT_EQ(Ask(kExit, absl::StrCat(kExitNoMemory)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(kExit, absl::StrCat(kExitNoLibraries)).status(),
            absl::FailedPreconditionError("no libraries"));
}

TEST_F(HelperProcessTest, AnAnswerThatIsTooLongEndsTheProcess) {
  const absl::Status status = helper_.Ask([&]() -> absl::Status {
    BALLAST_RETURN_IF_ERROR(helper_.Send(kManyBytes, {}));
    uint32_t kind;
    std::string body;
    return helper_.Receive(100, &kind, &body);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(helper_.process(), -1);
  EXPECT_EQ(Ends(HelperEnd::kAnswer), 1u);
}

TEST_F(HelperProcessTest, AnErrorOfTheExchangeLeavesTheProcessRunning) {
  EXPECT_EQ(helper_.Ask([] { return absl::CancelledError("enough"); }),
            absl::CancelledError("enough"));
  EXPECT_NE(helper_.process(), -1);
  EXPECT_TRUE(Ask(kEcho).ok());
  EXPECT_EQ(helper_.starts(), 1u);
}

TEST_F(HelperProcessTest, EachNewProcessIsPrepared) {
  int prepared = 0;
  HelperProcess::Options options = ProbeOptions();
  absl::Status result;
  options.prepare = [&](HelperProcess*) {
    ++prepared;
    return result;
  };
  HelperProcess helper(std::move(options), [] {
    return StartHelper({.name = "ballast-probe", .path = kProbe});
  });
  ASSERT_TRUE(AskOf(&helper, kEcho).ok());
  ASSERT_TRUE(AskOf(&helper, kEcho).ok());
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(AskOf(&helper, kTrap).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(prepared, 3);
  result = absl::InternalError("not prepared");
  EXPECT_EQ(AskOf(&helper, kEcho).status(), result);
  EXPECT_EQ(helper.process(), -1);
}

// Where nobody is told how a child ended, its end says nothing of the request.
TEST_F(HelperProcessTest, IgnoredSigchldBlocksNothing) {
  signal(SIGCHLD, SIG_IGN);
  const absl::Status status = Ask(kTrap).status();
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(HelperProcessTest, LivesLongerThanTheThreadThatStartedIt) {
  std::thread([this] { EXPECT_TRUE(Ask(kEcho).ok()); }).join();
  EXPECT_TRUE(Ask(kEcho).ok());
  EXPECT_EQ(helper_.starts(), 1u);
}

TEST_F(HelperProcessTest, ReadsTheDescriptorThatItIsGiven) {
  const std::string path = ::testing::TempDir() + "/given";
  std::ofstream(path) << "the one file";
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(*Ask(kReadFd, "", {file.get()}), "the one file");
}

TEST_F(HelperProcessTest, GetsNoSecretsOfTheEnvironment) {
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  setenv("LD_BALLAST_TEST", "seen", 1);
  EXPECT_EQ(*Ask(kGetVariable, "AWS_SECRET_ACCESS_KEY"), "");
  EXPECT_EQ(*Ask(kGetVariable, "LD_BALLAST_TEST"), "seen");
}

TEST_F(HelperProcessTest, IsInABox) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more system calls";
  if (!CanBoxHelpers()) GTEST_SKIP() << "this kernel has no seccomp";
  for (const char* deed :
       {"open", "create", "unlink", "socket", "unix socket", "fork", "exec",
        "signal", "ptrace", "memfd", "io_uring", "fcntl"}) {
    EXPECT_EQ(*Ask(kTry, deed), absl::StrCat(EPERM)) << deed;
  }
  EXPECT_EQ(helper_.starts(), 1u);
}

// A helper that `holder` has forked.
absl::StatusOr<HelperChild> Fork(HelperProcess* holder) {
  HelperChannel channel;
  const absl::Status status = holder->Ask([&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(channel, MakeHelperChannel());
    BALLAST_RETURN_IF_ERROR(holder->Send(
        kForkProbe, {}, {channel.socket.get(), channel.lifeline.get()}));
    uint32_t kind;
    std::string body;
    BALLAST_RETURN_IF_ERROR(holder->Receive(100, &kind, &body));
    EXPECT_TRUE(absl::SimpleAtoi(body, &channel.ours.process)) << body;
    return TieHelper(channel.ours.process, channel.lifeline);
  });
  if (!status.ok()) return status;
  return std::move(channel.ours);
}

TEST_F(HelperProcessTest, AForkedHelperIsOurChildAndForksNoMore) {
  HelperProcess forked(ProbeOptions(), [this] { return Fork(&helper_); });
  EXPECT_EQ(*AskOf(&forked, kEcho, "from the fork"), "from the fork");
  EXPECT_NE(forked.process(), helper_.process());
  if (!kSanitized && CanBoxHelpers()) {
    EXPECT_EQ(*AskOf(&forked, kTry, "fork"), absl::StrCat(EPERM));
    EXPECT_EQ(*AskOf(&forked, kTry, "open"), absl::StrCat(EPERM));
    EXPECT_EQ(*AskOf(&forked, kForkProbe), "-1");
  }
  // Its end is known, and it outlives the process that forked it.
  EXPECT_EQ(AskOf(&forked, kTrap).status(),
            absl::DataLossError("the probe ended on it twice (SIGILL)"));
  ASSERT_TRUE(AskOf(&forked, kEcho).ok());
  const uint64_t starts = forked.starts();
  helper_.Stop(HelperEnd::kAbandoned);
  EXPECT_TRUE(AskOf(&forked, kEcho).ok());
  EXPECT_EQ(forked.starts(), starts);
}

TEST_F(HelperProcessTest, TiesOnlyChildren) {
  const auto channel = MakeHelperChannel();
  ASSERT_TRUE(channel.ok());
  for (const pid_t process : {getppid(), getpid(), 0, -1}) {
    EXPECT_EQ(TieHelper(process, channel->lifeline).code(),
              absl::StatusCode::kUnavailable);
  }
}

// Killed at once, a process has no chance to end its helpers.
TEST_F(HelperProcessTest, DiesWithItsParentEvenIfItIsStopped) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    EXPECT_TRUE(Ask(kEcho).ok());
    const pid_t process = helper_.process();
    kill(process, SIGSTOP);
    if (write(pipe[1], &process, sizeof(process)) < 0) _exit(1);
    while (true) pause();
  }
  pid_t process = -1;
  ASSERT_EQ(read(pipe[0], &process, sizeof(process)),
            static_cast<ssize_t>(sizeof(process)));
  const OwnedFd handle(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  ASSERT_GE(handle.get(), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd ended = {handle.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 60'000), 1);
  close(pipe[0]);
  close(pipe[1]);
}

// Time passes by what the process does alone, so that no load of the machine
// makes it silent: a wait ends when the process has answered, has worked or was
// stopped.
class ImpatientTest : public HelperProcessTest {
 protected:
  ImpatientTest()
      : HelperProcessTest([this] {
          HelperProcess::Options options = ProbeOptions();
          options.patience = absl::Seconds(2);
          options.wait = [this](pollfd* socket, int) { return Wait(socket); };
          return options;
        }()) {}

  void StopProcess() {
    stopped_ = helper_.process();
    kill(stopped_, SIGSTOP);
  }

  int Wait(pollfd* socket) {
    if (helper_.process() == stopped_) return poll(socket, 1, 0);
    for (const absl::Duration before = Worked();;) {
      const int polled = poll(socket, 1, 1);
      if (polled != 0) return polled;
      if (Worked() < before + absl::Milliseconds(2)) continue;
      if (--working_waits_ == 0) work_.Reset();
      return 0;
    }
  }

  absl::Duration Worked() const {
    clockid_t clock;
    timespec time = {};
    EXPECT_EQ(clock_getcpuclockid(helper_.process(), &clock), 0);
    EXPECT_EQ(clock_gettime(clock, &time), 0);
    return absl::DurationFromTimespec(time);
  }

  pid_t stopped_ = -1;
  // The process works for so many waits, until this pipe ends.
  int working_waits_ = 0;
  OwnedFd work_;
};

TEST_F(ImpatientTest, AStoppedProcessIsReplaced) {
  ASSERT_TRUE(Ask(kEcho).ok());
  StopProcess();
  const auto answer = Ask(kEcho, "again");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "again");
  EXPECT_EQ(Ends(HelperEnd::kSilence), 1u);
}

TEST_F(ImpatientTest, ARequestThatDoesNotFitIntoAStoppedProcessEndsToo) {
  ASSERT_TRUE(Ask(kEcho).ok());
  StopProcess();
  EXPECT_TRUE(Ask(kEcho, std::string(10 << 20, 'x')).ok());
}

TEST_F(ImpatientTest, ProcessesThatAllStopMakeTheRequestUnavailable) {
  const absl::Status status = helper_.Ask([&]() -> absl::Status {
    StopProcess();
    uint32_t kind;
    std::string body;
    return helper_.Receive(100, &kind, &body);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the probe said and did nothing for 2s"));
  EXPECT_EQ(helper_.process(), -1);
}

TEST_F(ImpatientTest, WorkIsNoSilence) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC | O_NONBLOCK), 0);
  const OwnedFd read(pipe[0]);
  work_ = OwnedFd(pipe[1]);
  working_waits_ = 20;
  EXPECT_TRUE(Ask(kWork, "", {read.get()}).ok());
  EXPECT_LE(working_waits_, 0);
  EXPECT_EQ(helper_.starts(), 1u);
}

TEST(HelperEndTest, OnlyWhatTheProcessDidItselfIsACrash) {
  for (const auto& [code, status, end] :
       std::initializer_list<std::tuple<int, int, HelperEnd>>{
           {CLD_EXITED, 0, HelperEnd::kCrash},
           {CLD_EXITED, 1, HelperEnd::kCrash},
           {CLD_EXITED, 127, HelperEnd::kLibraries},
           {CLD_EXITED, kExitNoMemory, HelperEnd::kNoMemory},
           {CLD_EXITED, kExitMemoryLimit, HelperEnd::kMemoryLimit},
           {CLD_KILLED, SIGSEGV, HelperEnd::kCrash},
           {CLD_DUMPED, SIGABRT, HelperEnd::kCrash},
           {CLD_KILLED, SIGPROF, HelperEnd::kProcessorTime},
           {CLD_KILLED, SIGVTALRM, HelperEnd::kProcessorTime},
           {CLD_KILLED, SIGKILL, HelperEnd::kKilled},
           {CLD_KILLED, SIGTERM, HelperEnd::kKilled},
           {CLD_KILLED, SIGBUS, HelperEnd::kKilled},
           {0, 0, HelperEnd::kKilled},
       }) {
    EXPECT_EQ(GetHelperEnd(code, status), end) << code << " " << status;
  }
}

// The places of the server in the wheel, the tarball and a build.
TEST(HelperLibrariesTest, LieBesideTheFolderOfTheProgram) {
  const std::string root = ::testing::TempDir() + "/package";
  std::filesystem::create_directories(root + "/bin");
  EXPECT_EQ(GetHelperLibraries(root + "/bin/ballast-server"), "");
  std::filesystem::create_directories(root + "/lib/ballast");
  std::ofstream(root + "/lib/ballast/helpers") << "a file";
  EXPECT_EQ(GetHelperLibraries(root + "/bin/ballast-server"), "");
  std::filesystem::remove(root + "/lib/ballast/helpers");
  std::filesystem::create_directories(root + "/lib/ballast/helpers");
  EXPECT_EQ(GetHelperLibraries(root + "/bin/ballast-server"),
            root + "/lib/ballast/helpers");
  for (const char* odd : {"", "ballast-server", "/ballast-server"}) {
    EXPECT_EQ(GetHelperLibraries(odd), "") << odd;
  }
}

}  // namespace
}  // namespace ballast
