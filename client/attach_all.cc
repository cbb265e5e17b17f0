#include "client/attach_all.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/failover.h"
#include "client/schedule_source.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "common/threads.h"
#include "proto/schedule/fingerprint.h"

namespace ballast {
namespace {

using Answer = absl::StatusOr<v1::AttachResponse>;

// Every server's answer. The first is asked with `expected`; the others are
// compared with it here, so that the message has both addresses.
std::vector<Answer> AskAll(absl::Span<LoaderClient* const> servers,
                           const v1::Role& role,
                           const v1::Fingerprint& expected) {
  std::vector<Answer> answers(servers.size(), absl::UnknownError("not asked"));
  RunAll(servers.size(), servers.size(), [&](size_t i) {
    answers[i] =
        servers[i]->Attach(role, i == 0 ? expected : v1::Fingerprint());
    return absl::OkStatus();
  }).IgnoreError();
  return answers;
}

// Every server's cause, which names the server.
std::string AllAway(absl::Span<LoaderClient* const> servers,
                    const std::vector<Answer>& answers) {
  std::string text =
      absl::StrCat("none of the ", servers.size(), " servers answers");
  for (const Answer& answer : answers) {
    absl::StrAppend(&text, "; ", answer.status().message());
  }
  return text;
}

// The fingerprint leaves out balance.delivery because the schedule does not
// depend on it. A rank that moves between servers does depend on it.
absl::Status CheckSameDelivery(const v1::AttachResponse& a,
                               const std::string& a_address,
                               const v1::AttachResponse& b,
                               const std::string& b_address) {
  if (a.job().delivery() == b.job().delivery()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "servers of different configurations: balance.delivery is ",
      v1::Delivery_Name(a.job().delivery()), " at server ", a_address, " and ",
      v1::Delivery_Name(b.job().delivery()), " at server ", b_address));
}

// The first server whose fingerprint most answers have, and whether these are
// more than half of the answers.
struct Most {
  size_t server = 0;
  bool is_majority = false;
};
Most MostAgreeWith(const std::vector<Answer>& answers) {
  Most best;
  int most = 0;
  const int all = std::count_if(answers.begin(), answers.end(),
                                [](const Answer& each) { return each.ok(); });
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok()) continue;
    const auto agrees = [&](const Answer& other) {
      return other.ok() &&
             other->fingerprint().hash() == answers[i]->fingerprint().hash();
    };
    const int count = std::count_if(answers.begin(), answers.end(), agrees);
    if (count <= most) continue;
    best = {i, 2 * count > all};
    most = count;
  }
  return best;
}

// `first` with the changes of the running job that any server of the job knows:
// one that has just started may still learn the last.
absl::StatusOr<v1::AttachResponse> WithAllRevisions(
    absl::Span<LoaderClient* const> servers, const std::vector<Answer>& answers,
    const v1::AttachResponse& first) {
  v1::AttachResponse all = first;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!answers[i].ok() ||
        answers[i]->fingerprint().hash() != first.fingerprint().hash()) {
      continue;
    }
    const std::vector<v1::Revision> known(all.revisions().begin(),
                                          all.revisions().end());
    const std::vector<v1::Revision> told(answers[i]->revisions().begin(),
                                         answers[i]->revisions().end());
    if (!GoOnFrom(known, told)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "server ", servers[i]->address(),
          " has other changes of the running job than another server; stop the "
          "job and give all servers one serve.revisions"));
    }
    if (told.size() > known.size()) {
      *all.mutable_revisions() = answers[i]->revisions();
    }
  }
  return all;
}

// FAILED_PRECONDITION if a server of the job says that another rank requests
// another delivery.
absl::Status CheckAskAlike(absl::Span<LoaderClient* const> servers,
                           const std::vector<Answer>& answers,
                           const v1::Fingerprint& job) {
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!answers[i].ok() || answers[i]->fingerprint().hash() != job.hash() ||
        answers[i]->asks_otherwise().empty()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", servers[i]->address(), ": ", answers[i]->asks_otherwise()));
  }
  return absl::OkStatus();
}

// The first error that waiting cannot fix; else UNAVAILABLE with every cause.
absl::Status NoneAnswers(absl::Span<LoaderClient* const> servers,
                         const std::vector<Answer>& answers) {
  for (const Answer& answer : answers) {
    if (GetFault(answer.status()) != Fault::kPassing) return answer.status();
  }
  if (servers.size() == 1) return answers[0].status();
  return absl::UnavailableError(AllAway(servers, answers));
}

// One attempt of AttachAll, without `patience`.
absl::StatusOr<v1::AttachResponse> AttachNow(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected) {
  const std::vector<Answer> answers = AskAll(servers, role, expected);
  const bool primary_answers = answers[0].ok();
  if (!primary_answers && GetFault(answers[0].status()) != Fault::kPassing) {
    return answers[0].status();
  }
  // A primary with the fingerprint that the caller knows is the right one.
  const bool known = primary_answers && expected.ByteSizeLong() > 0;
  const Most most = MostAgreeWith(answers);
  const bool decides = known || (primary_answers && most.is_majority);
  const size_t first_server = known ? 0 : most.server;
  if (!answers[first_server].ok()) return NoneAnswers(servers, answers);
  const v1::AttachResponse* const first = &*answers[first_server];
  BALLAST_RETURN_IF_ERROR(CheckSameFingerprint(
      first->fingerprint(),
      absl::StrCat("server ", servers[first_server]->address()), expected,
      "what the client expects"));
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!answers[i].ok() || i == first_server) continue;
    const std::string name = absl::StrCat("server ", servers[i]->address());
    const absl::Status same =
        Annotate(CheckSameFingerprint(
                     first->fingerprint(),
                     absl::StrCat("server ", servers[first_server]->address()),
                     answers[i]->fingerprint(), name),
                 "servers of different configurations");
    if (!same.ok()) {
      if (!decides) return same;
      LogWarning("going on without ", name, ": ", same.message());
      continue;
    }
    BALLAST_RETURN_IF_ERROR(
        CheckSameDelivery(*first, servers[first_server]->address(), *answers[i],
                          servers[i]->address()));
  }
  BALLAST_RETURN_IF_ERROR(
      CheckAskAlike(servers, answers, first->fingerprint()));
  for (const Answer& answer : answers) {
    if (answer.ok()) continue;
    LogWarning("going on without ", answer.status().message());
  }
  return WithAllRevisions(servers, answers, *first);
}

// Says why no server answers: on a terminal in one line that is written over,
// elsewhere as an event at once, then after twice the time.
class WaitingLine {
 public:
  ~WaitingLine() {
    if (begun_) std::fputs("\n", stderr);
  }

  void Say(absl::string_view why, absl::Duration waited) {
    const bool shown = CurrentLogLevel() == LogLevel::kDebug ||
                       CurrentLogLevel() == LogLevel::kInfo;
    winsize size = {};
    if (shown && CurrentLogFormat() == LogFormat::kText &&
        isatty(STDERR_FILENO) && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) {
      const size_t width = size.ws_col > 1 ? size.ws_col - 1 : 79;
      const std::string line =
          OneLine(absl::StrCat("waiting for a server for ",
                               absl::ToInt64Seconds(waited), " s: ", why));
      std::fputs(absl::StrCat("\r\x1b[K", line.substr(0, width)).c_str(),
                 stderr);
      begun_ = true;
      return;
    }
    if (waited < due_) return;
    LogInfo("waiting for a server: ", why);
    due_ = 2 * waited;
  }

 private:
  bool begun_ = false;                         // the line on the terminal
  absl::Duration due_ = absl::ZeroDuration();  // of the next event
};

}  // namespace

absl::StatusOr<v1::AttachResponse> AttachAll(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected, absl::Duration patience, Clock* clock) {
  constexpr absl::Duration kPause = absl::Seconds(1);
  if (servers.empty()) {
    return absl::InvalidArgumentError("no server was given to attach to");
  }
  const std::unique_ptr<Sleeper> sleeper = clock->NewSleeper();
  const absl::Time start = clock->Now();
  WaitingLine waiting;
  while (true) {
    absl::StatusOr<v1::AttachResponse> answer =
        AttachNow(servers, role, expected);
    if (answer.ok() || GetFault(answer.status()) != Fault::kPassing ||
        clock->Now() - start + kPause > patience) {
      return answer;
    }
    waiting.Say(answer.status().message(), clock->Now() - start);
    sleeper->Sleep(kPause);
  }
}

}  // namespace ballast
