#include "client/spread_servers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "proto/schedule/spread.h"

namespace ballast {
namespace {

// Interval at which servers that are away are looked at, and at which a stream
// without a server looks for one.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(250);
// A server with a lasting fault is asked again after this long.
constexpr absl::Duration kLastingPause = absl::Minutes(1);

}  // namespace

SpreadServers::SpreadServers(Options options)
    : options_(std::move(options)),
      rank_(absl::StrCat(SplitWord(options_.role.split()),
                         ModuleName(options_.role.module()), " rank ",
                         options_.role.dp_rank())),
      sleeper_(options_.clock->NewSleeper()),
      look_sleeper_(options_.clock->NewSleeper()),
      random_(options_.failover.seed) {
  MutexLock lock(&mutex_);
  for (const std::string& name : options_.names) {
    servers_.emplace_back().name = name;
  }
  Prefer();
}

absl::Status SpreadServers::Start() {
  BALLAST_ASSIGN_OR_RETURN(looks_,
                           StartThread("look for servers", [this] { Look(); }));
  return absl::OkStatus();
}

SpreadServers::~SpreadServers() {
  look_sleeper_->Wake();
  if (looks_.joinable()) looks_.join();
}

void SpreadServers::Prefer() {
  std::vector<std::string> names;
  for (const Server& server : servers_) names.push_back(server.name);
  order_ = PreferServers(options_.role, names);
}

std::vector<SpreadServers::Serving> SpreadServers::serving() const {
  MutexLock lock(&mutex_);
  std::vector<Serving> serving;
  for (const size_t i : order_) {
    if (!begun_ || serving.size() == options_.most) break;
    const Server& server = servers_[i];
    if (server.well) serving.push_back({i, server.name, server.weight});
  }
  std::sort(
      serving.begin(), serving.end(),
      [](const Serving& a, const Serving& b) { return a.server < b.server; });
  return serving;
}

bool SpreadServers::TakeNews() {
  MutexLock lock(&mutex_);
  return std::exchange(news_, false);
}

void SpreadServers::AddNews() {
  MutexLock lock(&mutex_);
  news_ = true;
}

std::string SpreadServers::name(size_t server) const {
  MutexLock lock(&mutex_);
  return servers_[server].name;
}

void SpreadServers::NoteProgress(size_t server) {
  MutexLock lock(&mutex_);
  failing_since_ = absl::InfiniteFuture();
  servers_[server].failures = 0;
  for (Server& each : servers_) {
    if (each.well) each.last = absl::OkStatus();
  }
}

void SpreadServers::NoteFailure(size_t number, const absl::Status& why,
                                const std::string& where) {
  MutexLock lock(&mutex_);
  Server& server = servers_[number];
  const absl::Time now = options_.clock->Now();
  failing_since_ = std::min(failing_since_, now);
  server.well = false;
  ++server.failures;
  server.last = why;
  server.not_before = now + Backoff(server);
  news_ = true;
  const auto others =
      std::count_if(servers_.begin(), servers_.end(),
                    [](const Server& each) { return each.well; });
  LogWarning(
      rank_, ": ", server.name, " failed at ", where, ": ", why.message(), "; ",
      others,
      others == 1 ? " server makes its blocks" : " servers make its blocks");
}

absl::Duration SpreadServers::Backoff(const Server& server) {
  if (GetFault(server.last) == Fault::kLasting) return kLastingPause;
  const FailoverOptions& failover = options_.failover;
  absl::Duration backoff = failover.first_backoff;
  for (int i = 1; i < server.failures && backoff < failover.max_backoff; ++i) {
    backoff *= 2;
  }
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  const double random = static_cast<double>(random_ >> 11) * 0x1p-53;
  return std::min(backoff, failover.max_backoff) *
         (1 - failover.jitter * random);
}

absl::Status SpreadServers::AwaitNews(const std::string& where) {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (cancelled_) break;
      if (news_) return absl::OkStatus();
      BALLAST_RETURN_IF_ERROR(Exhausted(where));
    }
    if (!sleeper_->Sleep(kLookPeriod)) break;
  }
  return absl::CancelledError("the batch stream was cancelled");
}

void SpreadServers::Cancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  sleeper_->Wake();
}

absl::Status SpreadServers::Exhausted(const std::string& where) const {
  const absl::Time now = options_.clock->Now();
  const bool patient = now - failing_since_ < options_.failover.patience;
  bool lasting = true;
  std::string message = absl::StrCat("gave up at ", where, ": none of the ",
                                     servers_.size(), " servers can go on");
  for (const Server& server : servers_) {
    lasting = lasting && GetFault(server.last) == Fault::kLasting;
    if (server.last.ok()) continue;
    absl::StrAppend(&message, "; ", server.name, ": ", server.last.message());
  }
  if (patient && !lasting) return absl::OkStatus();
  return absl::Status(
      lasting ? servers_[0].last.code() : absl::StatusCode::kUnavailable,
      message);
}

void SpreadServers::Look() {
  // Shares begin once the first have been asked, and one of them serves.
  while (AskPreferred()) {
    MutexLock lock(&mutex_);
    if (std::any_of(servers_.begin(), servers_.end(),
                    [](const Server& each) { return each.well; })) {
      break;
    }
  }
  {
    MutexLock lock(&mutex_);
    begun_ = true;
    news_ = true;
  }
  absl::Time listed = options_.clock->Now();
  while (look_sleeper_->Sleep(kLookPeriod)) {
    const absl::Time now = options_.clock->Now();
    if (options_.list != nullptr && now - listed >= kListPeriod) {
      listed = now;
      List();
    }
    AskPreferred();
  }
}

void SpreadServers::List() {
  const std::vector<std::string> names = options_.list();
  MutexLock lock(&mutex_);
  if (names.size() == servers_.size()) return;
  for (size_t i = servers_.size(); i < names.size(); ++i) {
    servers_.emplace_back().name = names[i];
  }
  Prefer();
}

std::vector<size_t> SpreadServers::Due() const {
  std::vector<size_t> due;
  MutexLock lock(&mutex_);
  const absl::Time now = options_.clock->Now();
  size_t serving = 0;
  for (const size_t i : order_) {
    if (serving + due.size() == options_.most) break;
    if (servers_[i].well) {
      ++serving;
    } else if (servers_[i].not_before <= now) {
      due.push_back(i);
    }
  }
  return due;
}

bool SpreadServers::AskPreferred() {
  const std::vector<size_t> due = Due();
  if (due.empty()) return false;
  // At once: one that does not answer must not keep the others waiting.
  RunAll(due.size(), due.size(), [&](size_t i) {
    NoteAnswer(due[i], options_.ask(due[i]));
    return absl::OkStatus();
  }).IgnoreError();
  return true;
}

void SpreadServers::NoteAnswer(size_t number,
                               const absl::StatusOr<uint32_t>& answer) {
  MutexLock lock(&mutex_);
  Server& server = servers_[number];
  if (answer.ok()) {
    if (begun_) {
      LogInfo(rank_, ": ", server.name, " serves with ", *answer,
              *answer == 1 ? " worker" : " workers", ", and takes a share");
    }
    server.well = true;
    server.weight = std::clamp<uint32_t>(*answer, 1, kMaxWeight);
    news_ = begun_;
    return;
  }
  // Once for each cause, not for each question.
  if (server.last.code() != answer.status().code()) {
    LogWarning(rank_, ": going on without ", server.name, ": ",
               answer.status().message());
  }
  const absl::Time now = options_.clock->Now();
  ++server.failures;
  server.last = answer.status();
  server.not_before = now + Backoff(server);
  if (std::none_of(servers_.begin(), servers_.end(),
                   [](const Server& each) { return each.well; })) {
    failing_since_ = std::min(failing_since_, now);
  }
}

}  // namespace ballast
