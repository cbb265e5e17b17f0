#include "server/command/commands.h"

#include <malloc.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/build_info.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/mutex.h"
#include "common/service_manager.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/config/config_loader.h"
#include "server/config/config_validate.h"
#include "server/job/revision.h"
#include "server/model/model_warnings.h"
#include "server/serve/service/server.h"
#include "server/text/chat_writer.h"

namespace ballast {

namespace {

// After a signal the process ends within kPromised, of which kDrainTime is for
// blocks in transmission.
constexpr absl::Duration kPromised = absl::Seconds(10);
constexpr absl::Duration kDrainTime = absl::Seconds(8);
constexpr absl::Duration kLongWait = absl::Hours(1);
// Longest time between looks at the files of security.tls and at the addresses.
constexpr absl::Duration kLook = absl::Seconds(5);

struct ServeOptions {
  std::string config;
  std::vector<std::string> listen;
  std::string meeting;
};

LogLevel GetLogLevel(const v1::Serve& serve) {
  switch (serve.log_level()) {
    case v1::Serve::LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case v1::Serve::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::Serve::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

absl::StatusOr<LoadedConfig> Load(const ServeOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config,
                           LoadConfig(options.config, options.listen));
  if (!options.meeting.empty()) {
    const auto address = ParseConfiguredAddress(options.meeting);
    if (!address.ok()) return Annotate(address.status(), "--meeting");
    config.config.mutable_topology()->set_meeting(options.meeting);
  }
  return config;
}

// Workers allocate memory for a sample's files and free it, sample after
// sample. By default glibc returns it to the kernel, which clears each page
// when it is next touched. With these settings each thread keeps its freed
// memory: a few files.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// Reads the configuration again and applies the settings that may change. If it
// cannot, logs why and changes nothing.
void Reload(const ServeOptions& options, LoaderServer* server,
            v1::Config* running) {
  NotifyReloading();
  const absl::Status status = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(const LoadedConfig wanted, Load(options));
    BALLAST_RETURN_IF_ERROR(CheckReload(*running, wanted.config));
    BALLAST_RETURN_IF_ERROR(server->Reload(wanted.config));
    SuggestLogLevel(GetLogLevel(wanted.config.serve()));
    *running = wanted.config;
    return absl::OkStatus();
  }();
  server->NoteProblem(
      "reload", options.config,
      Annotate(status,
               "the last SIGHUP changed nothing. Correct the file and "
               "send it again"));
  if (status.ok()) {
    LogInfo("reloaded ", options.config);
  } else {
    LogError("not reloaded, nothing has changed: ", status.message());
  }
  NotifyServiceManager("READY=1");
}

// Reloads certificates that were replaced on disk without a signal, as
// Kubernetes does. `fault` is the last error found; each error is logged once.
void RenewTls(LoaderServer* server, std::string* fault) {
  const absl::StatusOr<bool> renewed = server->RenewTls();
  server->NoteProblem("certificate", "security.tls",
                      Annotate(renewed.status(),
                               "new connections still use the previous "
                               "certificates"));
  std::string found(renewed.status().message());
  if (!found.empty() && found != *fault) {
    LogError("new connections still use the previous certificates: ", found);
  }
  *fault = std::move(found);
}

absl::Status Serve(const ServeOptions& options) {
  KeepFreedMemory();
  RaiseHardDescriptorLimit();
  RaiseDescriptorLimit();
  SendLibraryLogsToLog();
  BALLAST_ASSIGN_OR_RETURN(ServeSignals signals,
                           ServeSignals::Start(kPromised));
  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config, Load(options));
  SuggestLogLevel(GetLogLevel(config.config.serve()));
  LogInfo("ballast-server ", ShortVersion(), " starting with ", options.config);
  const std::string warning = TrialTokenizerWarning(config.config);
  if (!warning.empty()) LogWarning(warning);
  for (const std::string& warning : ModelWarnings(config.config.model())) {
    LogWarning(options.config, ": ", warning);
  }
  for (const std::string& warning : TemplateWarnings(config.config.model())) {
    LogWarning(options.config, ": ", warning);
  }
  BALLAST_ASSIGN_OR_RETURN(
      const std::unique_ptr<LoaderServer> server,
      LoaderServer::Start(config, LoaderServer::Rehearsal::kFirstBlocks));
  signals.SetPhase(SignalRule::Phase::kServing);
  const std::string addresses = absl::StrJoin(server->addresses(), " ");
  // Logged first: whoever has read `ready` finds it in the log.
  LogInfo("ready at ", addresses);
  std::cout << "ready " << addresses << std::endl;
  if (!std::cout) {
    return absl::UnavailableError("cannot write to standard output");
  }
  NotifyServiceManager(absl::StrCat("READY=1\nSTATUS=serving at ", addresses));

  const std::optional<absl::Duration> watchdog = WatchdogTimeout();
  const absl::Duration patience =
      std::min(watchdog.has_value() ? *watchdog / 2 : kLook, kLook);
  std::string tls_fault;
  int signal = 0;
  while (signal == 0 && server->lost().ok()) {
    signal = signals.Await(patience);
    if (signal == SIGHUP) {
      Reload(options, server.get(), &config.config);
      signal = 0;
    } else if (signal == 0) {
      RenewTls(server.get(), &tls_fault);
    }
    if (watchdog.has_value()) {
      // Blocks forever if the streams are stuck: the service manager then
      // restarts the server.
      server->open_streams();
      NotifyServiceManager("WATCHDOG=1");
    }
  }

  signals.SetPhase(SignalRule::Phase::kDraining);
  LogInfo(signal == 0 ? "an address is lost" : SignalName(signal),
          ": draining, ", server->open_streams(), " streams are open");
  NotifyServiceManager("STOPPING=1\nSTATUS=draining");
  const absl::Time start = absl::Now();
  server->Drain(start + kDrainTime);
  signals.SetPhase(SignalRule::Phase::kClosing);
  LogInfo("drained in ", absl::FormatDuration(absl::Trunc(
                             absl::Now() - start, absl::Milliseconds(1))));
  NotifyServiceManager("STATUS=closing");
  return server->lost();
}

}  // namespace

void AddServe(CommandLine* line) {
  auto options = std::make_shared<ServeOptions>();
  Command* command = line->AddCommand(
      line->program(), "serve",
      R"(Serves shards until SIGTERM. Prints `ready ADDRESS...` on standard output once
the index is open and the first blocks have been built.

SIGTERM drains the server: each stream ends after the block that is being sent,
and the exit status is 0. The process ends within 10 s of the signal, whatever
hangs. A second SIGTERM ends it at once. If an address cannot be listened at
any more, the server drains likewise and ends with status 1.

SIGHUP reads the configuration again and applies changes of the log level,
tokens, certificates and limits of bad data. If anything else has changed,
nothing is applied and the log says why. Certificates are also checked every
five seconds.)",
      "  ballast-server serve --config ballast.yaml\n"
      "  ballast-server serve --config ballast.yaml --listen 127.0.0.1:0",
      [options] { return Serve(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command
      ->AddTexts("--listen", &options->listen,
                 "unix:/path or host:port, instead of serve.listen; port 0 "
                 "lets the system choose")
      .TypeName("ADDRESS");
  command
      ->AddText("--meeting", &options->meeting,
                "unix:/path or host:port of the server where groups of ranks "
                "meet, in the place of topology.meeting")
      .TypeName("ADDRESS");
}

namespace {

constexpr absl::Duration kSameSignal = absl::Milliseconds(100);

sigset_t ServeSet() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

const char* GetName(SignalRule::Phase phase) {
  switch (phase) {
    case SignalRule::Phase::kStarting:
      return "starting";
    case SignalRule::Phase::kServing:
    case SignalRule::Phase::kDraining:
      return "draining";
    case SignalRule::Phase::kClosing:
      return "closing";
  }
  return "";
}

}  // namespace

SignalRule::Act SignalRule::OnSignal(int signal, absl::Time now) {
  if (signal == SIGHUP) return signal_ == 0 ? Act::kReload : Act::kNone;
  if (phase_ != Phase::kStarting) {
    if (signal_ == 0) {
      signal_ = signal;
      first_ = now;
      return Act::kNone;
    }
    if (now < first_ + kSameSignal) return Act::kNone;
  }
  exit_status_ = 128 + signal;
  reason_ = absl::StrCat(SignalName(signal), " while ", GetName(phase_),
                         ": ends at once");
  return Act::kEnd;
}

absl::Time SignalRule::deadline() const {
  return first_ + (drains_ ? promised_ : kSameSignal);
}

SignalRule::Act SignalRule::OnTime(absl::Time now) {
  if (now < deadline()) return Act::kNone;
  if (!drains_) {
    drains_ = true;
    return Act::kDrain;
  }
  const std::string late =
      absl::StrCat(absl::FormatDuration(promised_), " after the signal");
  if (phase_ == Phase::kClosing) {
    exit_status_ = 0;
    reason_ = absl::StrCat(
        "closing: ends now, ", late,
        ": all streams have ended, but a thread is still blocked, as by a file "
        "system or a process that hangs");
  } else {
    exit_status_ = 1;
    reason_ = absl::StrCat(
        "draining: ends now, ", late,
        ": a thread is blocked, as by a file system or a process that hangs");
  }
  return Act::kEnd;
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal)
                         : absl::StrCat("SIG", name);
}

struct ServeSignals::State {
  explicit State(absl::Duration promised) : rule(promised) {}

  Mutex mutex;
  CondVar arrived;
  SignalRule rule ABSL_GUARDED_BY(mutex);
  bool reload ABSL_GUARDED_BY(mutex) = false;
  int drain ABSL_GUARDED_BY(mutex) = 0;  // the signal, until it is taken
};

absl::StatusOr<ServeSignals> ServeSignals::Start(absl::Duration promised) {
  const sigset_t set = ServeSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ServeSignals signals(new State(promised));
  BALLAST_ASSIGN_OR_RETURN(
      std::thread thread,
      StartThread("wait for signals",
                  [state = signals.state_] { Run(state); }));
  thread.detach();
  return signals;
}

void ServeSignals::Run(State* state) {
  const sigset_t set = ServeSet();
  while (true) {
    absl::Duration wait;
    {
      MutexLock lock(&state->mutex);
      wait = std::clamp(state->rule.deadline() - absl::Now(),
                        absl::ZeroDuration(), kLongWait);
    }
    const timespec limit = absl::ToTimespec(wait);
    const int signal = sigtimedwait(&set, nullptr, &limit);
    std::string reason;
    int exit_status = 0;
    {
      MutexLock lock(&state->mutex);
      SignalRule& rule = state->rule;
      switch (signal > 0 ? rule.OnSignal(signal, absl::Now())
                         : rule.OnTime(absl::Now())) {
        case SignalRule::Act::kNone:
          continue;
        case SignalRule::Act::kReload:
          state->reload = true;
          state->arrived.NotifyAll();
          continue;
        case SignalRule::Act::kDrain:
          state->drain = rule.signal();
          state->arrived.NotifyAll();
          continue;
        case SignalRule::Act::kEnd:
          reason = rule.reason();
          exit_status = rule.exit_status();
      }
    }
    LogWarning(reason);
    _exit(exit_status);
  }
}

void ServeSignals::SetPhase(SignalRule::Phase phase) {
  MutexLock lock(&state_->mutex);
  state_->rule.SetPhase(phase);
}

int ServeSignals::Await(absl::Duration most) {
  const absl::Time end = absl::Now() + most;
  MutexLock lock(&state_->mutex);
  while (state_->drain == 0 && !state_->reload) {
    const absl::Duration left = std::min(end - absl::Now(), kLongWait);
    if (left <= absl::ZeroDuration()) return 0;
    state_->arrived.WaitFor(&state_->mutex, absl::ToChronoNanoseconds(left));
  }
  if (state_->drain != 0) return state_->drain;
  state_->reload = false;
  return SIGHUP;
}

}  // namespace ballast
