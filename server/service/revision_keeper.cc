#include "server/service/revision_keeper.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/service/revision_store.h"

namespace ballast {
namespace {

// Opening the sources of a change; answering to it; being told the decision, or
// asked what a server knows.
constexpr absl::Duration kCheckTime = absl::Seconds(60);
constexpr absl::Duration kPrepareTime = absl::Seconds(10);
constexpr absl::Duration kTellTime = absl::Seconds(2);
// Between two looks at the others: while this server waits for something, and
// otherwise.
constexpr absl::Duration kWaiting = absl::Seconds(1);
constexpr absl::Duration kQuiet = absl::Seconds(30);
// Servers that are asked at the same time.
constexpr size_t kAskedAtOnce = 16;
// Longest text of a file (kMaxFileBytes in server/config/config_loader.cc).
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

absl::Status Stopping() {
  return absl::UnavailableError("the server is draining");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RevisionKeeper>> RevisionKeeper::Create(
    Settings settings, std::unique_ptr<RevisionPeers> peers,
    std::unique_ptr<RevisedJob> job) {
  BALLAST_ASSIGN_OR_RETURN(
      v1::RevisionBook book,
      ReadRevisions(settings.path, job->own().scheduler->fingerprint().hash(),
                    settings.name, settings.peers.empty()));
  book = RevisionAgreement::Recovered(settings.decider == settings.name,
                                      std::move(book));
  BALLAST_RETURN_IF_ERROR(WriteRevisions(settings.path, book));
  return std::unique_ptr<RevisionKeeper>(new RevisionKeeper(
      std::move(settings), std::move(peers), std::move(job), std::move(book)));
}

RevisionKeeper::RevisionKeeper(Settings settings,
                               std::unique_ptr<RevisionPeers> peers,
                               std::unique_ptr<RevisedJob> job,
                               v1::RevisionBook book)
    : settings_(std::move(settings)),
      peers_(std::move(peers)),
      job_(std::move(job)),
      gate_(book.reached_below(),
            [this](uint64_t below) { return KeepReached(below); }),
      agreement_(std::move(book)) {
  if (!complete()) {
    to_know_.insert(settings_.peers.begin(), settings_.peers.end());
  }
}

absl::Status RevisionKeeper::Open() {
  BALLAST_RETURN_IF_ERROR(Annotate(ApplyBook(), "serve.revisions"));
  UpdateGate();
  return absl::OkStatus();
}

bool RevisionKeeper::complete() const {
  MutexLock lock(&book_mutex_);
  return agreement_.knows();
}

absl::Status RevisionKeeper::Start(Clock* clock) {
  gate_.Begin();
  clock_ = clock;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot start the thread that agrees on changes: ", error.what()));
  }
  const auto look = [this] {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(look_waits_, true)) return;
    }
    AddTask([this](const absl::Status& refused) {
      {
        MutexLock lock(&mutex_);
        look_waits_ = false;
      }
      if (refused.ok()) Look();
    });
  };
  look();
  BALLAST_ASSIGN_OR_RETURN(
      ticker_, Ticker::Start(
                   "look for changes", [] { return kWaiting; }, look, clock));
  return absl::OkStatus();
}

void RevisionKeeper::Stop() {
  peers_->Cancel();
  ticker_.reset();
  std::deque<Task> left;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    left.swap(tasks_);
  }
  changed_.NotifyAll();
  for (const Task& task : left) task(Stopping());
  if (thread_.joinable()) thread_.join();
}

void RevisionKeeper::AddTask(Task task) {
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    if (stopping_) {
      refused = Stopping();
    } else if (tasks_.size() >= kMaxWaiting) {
      refused = absl::ResourceExhaustedError(absl::StrCat(
          kMaxWaiting, " calls about changes are waiting; try again"));
    } else {
      tasks_.push_back(std::move(task));
    }
  }
  if (refused.ok()) {
    changed_.NotifyAll();
  } else {
    task(refused);
  }
}

void RevisionKeeper::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(absl::OkStatus());
  }
}

v1::GetRevisionsResponse RevisionKeeper::Known(uint64_t have) const {
  v1::GetRevisionsResponse known;
  known.set_server(settings_.name);
  known.set_decider(settings_.decider);
  known.set_keeps(true);
  const uint64_t reached = gate_.reached_below();
  known.set_reached_below(reached);
  MutexLock lock(&book_mutex_);
  const v1::RevisionBook& book = agreement_.book();
  known.set_job(book.job());
  known.set_book(book.book());
  known.set_attempts(book.attempts());
  known.set_under_way(agreement_.under_way());
  *known.mutable_revisions() = book.revisions();
  if (book.has_prepared()) {
    *known.mutable_prepared() = book.prepared();
    known.mutable_prepared()->clear_config();
  }
  for (v1::ConfigRevision& revision : *known.mutable_revisions()) {
    if (revision.number() <= have) revision.clear_config();
  }
  known.set_earliest_step(agreement_.EarliestStep(reached));
  known.set_knows(agreement_.knows());
  return known;
}

void RevisionKeeper::Change(const v1::ChangeRequest& request,
                            Answer<v1::ChangeResponse> answer) {
  AddTask(
      [this, request, answer = std::move(answer)](const absl::Status& refused) {
        if (!refused.ok()) return answer(refused);
        answer(MakeChange(request));
      });
}

void RevisionKeeper::Agree(const v1::AgreeRequest& request,
                           Answer<v1::AgreeResponse> answer) {
  AddTask(
      [this, request, answer = std::move(answer)](const absl::Status& refused) {
        if (!refused.ok()) return answer(refused);
        answer(MakeAgree(request));
      });
}

absl::Status RevisionKeeper::Write(v1::RevisionBook book) {
  MutexLock lock(&book_mutex_);
  // What is kept of steps may have changed since `book` was made.
  if (!book.has_prepared() ||
      agreement_.book().reached_below() <= book.prepared().first_step()) {
    book.set_reached_below(
        std::max(book.reached_below(), agreement_.book().reached_below()));
  }
  BALLAST_RETURN_IF_ERROR(WriteRevisions(settings_.path, book));
  agreement_.Keep(std::move(book));
  return absl::OkStatus();
}

absl::Status RevisionKeeper::KeepReached(uint64_t below) {
  MutexLock lock(&book_mutex_);
  v1::RevisionBook book = agreement_.book();
  book.set_reached_below(below);
  BALLAST_RETURN_IF_ERROR(WriteRevisions(settings_.path, book));
  agreement_.Keep(std::move(book));
  return absl::OkStatus();
}

absl::Status RevisionKeeper::OpenCandidate(const v1::ConfigRevision& revision) {
  if (candidate_.has_value() &&
      candidate_->first_step == revision.first_step() &&
      candidate_->config == revision.config()) {
    return absl::OkStatus();
  }
  candidate_.reset();
  BALLAST_ASSIGN_OR_RETURN(
      candidate_, job_->Open(revision.config(), revision.first_step()));
  return absl::OkStatus();
}

absl::Status RevisionKeeper::ApplyBook() {
  std::vector<v1::ConfigRevision> missing;
  {
    MutexLock lock(&book_mutex_);
    const v1::RevisionBook& book = agreement_.book();
    for (int i = static_cast<int>(job_->revisions()); i < book.revisions_size();
         ++i) {
      missing.push_back(book.revisions(i));
    }
  }
  apply_fault_ = [&]() -> absl::Status {
    for (const v1::ConfigRevision& revision : missing) {
      BALLAST_RETURN_IF_ERROR(
          Annotate(OpenCandidate(revision), Describe(revision)));
      if (candidate_->fingerprint() != revision.fingerprint()) {
        const std::string found = candidate_->fingerprint();
        candidate_.reset();
        return absl::FailedPreconditionError(absl::StrCat(
            Describe(revision), " has fingerprint ", revision.fingerprint(),
            " in the job and ", found,
            " here: files of this server (data, index, recipe, tokenizer) or "
            "its release have changed"));
      }
      job_->Apply(*std::move(candidate_));
      candidate_.reset();
      LogInfo(Describe(revision), " holds; fingerprint ",
              revision.fingerprint());
    }
    return absl::OkStatus();
  }();
  return apply_fault_;
}

void RevisionKeeper::UpdateGate() {
  uint64_t hold = StepGate::kNone;
  std::string why;
  bool knows;
  {
    MutexLock lock(&book_mutex_);
    const v1::RevisionBook& book = agreement_.book();
    knows = agreement_.knows();
    if (book.has_prepared()) {
      hold = book.prepared().first_step();
      why = absl::StrCat("the servers of the job agree on ",
                         Describe(book.prepared()), ", and server ",
                         settings_.decider, " decides");
    }
    if (static_cast<int>(job_->revisions()) < book.revisions_size()) {
      hold = std::min<uint64_t>(hold,
                                book.revisions(job_->revisions()).first_step());
      why =
          absl::StrCat("this server cannot serve it: ", apply_fault_.message());
    }
  }
  if (!gate_.Hold(hold, std::move(why)) && fault_.ok()) {
    // Ruled out by what is asked before each change.
    fault_ = absl::InternalError(
        absl::StrCat("ranks have reached step ", gate_.reached_below(),
                     " of this server, and a change that holds begins at step ",
                     hold, "; resume from a checkpoint before it"));
    LogError(fault_.message());
  }
  if (!fault_.ok()) {
    gate_.Close(fault_);
  } else if (!knows || !to_know_.empty()) {
    std::string silent = to_know_.empty() ? "" : *to_know_.begin();
    for (const std::string& peer : settings_.peers) {
      if (!knows && heard_.count(peer) == 0) silent = peer;
    }
    gate_.Close(absl::UnavailableError(
        absl::StrCat("serve.revisions was missing, so this server asks all "
                     "others of the job "
                     "for its changes before it serves; server ",
                     silent, " has not answered yet")));
  } else {
    gate_.Close(absl::OkStatus());
  }
}

absl::Status RevisionKeeper::Prepare(const v1::ConfigRevision& revision) {
  BALLAST_RETURN_IF_ERROR(OpenCandidate(revision));
  if (candidate_->fingerprint() != revision.fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the change has fingerprint ", revision.fingerprint(),
                     " where it was offered and ", candidate_->fingerprint(),
                     " here: the servers' files differ"));
  }
  const absl::Status said = [&]() -> absl::Status {
    // A step that is held stays so.
    uint64_t hold = revision.first_step();
    {
      MutexLock lock(&book_mutex_);
      hold = std::min(hold, agreement_.HoldFrom().value_or(StepGate::kNone));
    }
    const bool held = gate_.Hold(
        hold,
        absl::StrCat("the servers of the job agree on ", Describe(revision)));
    const uint64_t reached = gate_.reached_below();
    absl::StatusOr<v1::RevisionBook> book = [&] {
      MutexLock lock(&book_mutex_);
      return agreement_.Prepare(revision, reached);
    }();
    BALLAST_RETURN_IF_ERROR(book.status());
    if (!held) {
      return absl::FailedPreconditionError(
          absl::StrCat("ranks have reached step ", reached - 1));
    }
    return Write(*std::move(book));
  }();
  UpdateGate();
  return said;
}

absl::Status RevisionKeeper::Commit(const v1::ConfigRevision& revision) {
  const uint64_t reached = gate_.reached_below();
  BALLAST_ASSIGN_OR_RETURN(
      std::optional<v1::RevisionBook> book,
      [&]() -> absl::StatusOr<std::optional<v1::RevisionBook>> {
        MutexLock lock(&book_mutex_);
        return agreement_.OnCommit(revision, reached);
      }());
  if (book.has_value()) BALLAST_RETURN_IF_ERROR(Write(*std::move(book)));
  return absl::OkStatus();
}

absl::Status RevisionKeeper::Abort(const v1::ConfigRevision& revision) {
  std::optional<v1::RevisionBook> book;
  {
    MutexLock lock(&book_mutex_);
    book = agreement_.OnAbort(revision);
  }
  absl::Status written;
  if (book.has_value()) written = Write(*std::move(book));
  UpdateGate();
  return written;
}

absl::StatusOr<v1::AgreeResponse> RevisionKeeper::MakeAgree(
    const v1::AgreeRequest& request) {
  const v1::ConfigRevision& revision = request.revision();
  if (request.job() != job_->own().scheduler->fingerprint().hash()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the server that decides has fingerprint ", request.job(), ", and ",
        settings_.name, " ", job_->own().scheduler->fingerprint().hash()));
  }
  v1::AgreeResponse response;
  switch (request.phase()) {
    case v1::AgreeRequest::PHASE_CHECK: {
      const uint64_t reached = gate_.reached_below();
      {
        MutexLock lock(&book_mutex_);
        response.set_earliest_step(agreement_.EarliestStep(reached));
        BALLAST_RETURN_IF_ERROR(agreement_.Check(
            revision.number(), revision.first_step(), reached));
      }
      BALLAST_RETURN_IF_ERROR(OpenCandidate(revision));
      response.set_fingerprint(candidate_->fingerprint());
      response.mutable_notes()->Add(candidate_->notes.begin(),
                                    candidate_->notes.end());
      return response;
    }
    case v1::AgreeRequest::PHASE_PREPARE:
      BALLAST_RETURN_IF_ERROR(Prepare(revision));
      response.set_fingerprint(revision.fingerprint());
      return response;
    case v1::AgreeRequest::PHASE_COMMIT: {
      const absl::Status kept = Commit(revision);
      if (kept.ok()) ApplyBook().IgnoreError();  // UpdateGate says it
      UpdateGate();
      BALLAST_RETURN_IF_ERROR(kept);
      BALLAST_RETURN_IF_ERROR(apply_fault_);
      return response;
    }
    case v1::AgreeRequest::PHASE_ABORT:
      BALLAST_RETURN_IF_ERROR(Abort(revision));
      return response;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("AgreeRequest.phase is ", request.phase(),
                       "; is the server that "
                       "decides of another release?"));
  }
}

absl::Status RevisionKeeper::AskAll(
    v1::AgreeRequest::Phase phase, const v1::ConfigRevision& revision,
    absl::Duration patience,
    const std::function<absl::Status(const std::string& server,
                                     const v1::AgreeResponse& answer)>& each) {
  v1::AgreeRequest request;
  request.set_phase(phase);
  request.set_job(job_->own().scheduler->fingerprint().hash());
  *request.mutable_revision() = revision;
  std::vector<absl::Status> results(settings_.peers.size());
  std::atomic<size_t> next = 0;
  Mutex mutex;
  const auto ask = [&] {
    for (size_t i; (i = next.fetch_add(1)) < results.size();) {
      const std::string& peer = settings_.peers[i];
      const auto answer = peers_->Agree(peer, request, patience);
      MutexLock lock(&mutex);
      results[i] = Annotate(answer.ok() ? each(peer, *answer) : answer.status(),
                            absl::StrCat("server ", peer));
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(results.size(), kAskedAtOnce); ++i) {
    try {
      threads.emplace_back(ask);
    } catch (const std::system_error&) {
      break;  // the others do it
    }
  }
  ask();
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) {
    if (!result.ok()) return std::move(result);
  }
  return absl::OkStatus();
}

namespace {

// An error before the decision. UNAVAILABLE is for what may have been decided.
absl::Status NothingChanged(const absl::Status& status) {
  const bool passes = absl::IsUnavailable(status) ||
                      absl::IsDeadlineExceeded(status) ||
                      absl::IsCancelled(status);
  return passes ? absl::FailedPreconditionError(status.message()) : status;
}

}  // namespace

absl::StatusOr<v1::ChangeResponse> RevisionKeeper::CheckChange(
    const v1::ChangeRequest& request, v1::ConfigRevision* wanted_out) {
  v1::ConfigRevision& wanted = *wanted_out;
  if (!decides()) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", settings_.name,
                     " does not decide; offer the "
                     "change to server ",
                     settings_.decider));
  }
  if (!settings_.servers_known) {
    return absl::FailedPreconditionError(
        "topology.servers does not name all servers of the job "
        "(topology.meeting), so nobody could ask them");
  }
  if (request.config().size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the configuration has ",
                                                   request.config().size(),
                                                   " bytes, wanted at "
                                                   "most ",
                                                   kMaxConfigBytes));
  }
  wanted.set_first_step(request.first_step());
  wanted.set_config(request.config());
  const uint64_t reached = gate_.reached_below();
  v1::ChangeResponse response;
  v1::ChangeResponse::Server* const own = response.add_servers();
  own->set_address(settings_.name);
  {
    MutexLock lock(&book_mutex_);
    wanted.set_number(agreement_.book().revisions_size() + 1);
    own->set_earliest_step(agreement_.EarliestStep(reached));
    v1::ConfigRevision attempt;
    BALLAST_RETURN_IF_ERROR(
        agreement_.Begin(wanted, reached, &attempt).status());
  }
  BALLAST_RETURN_IF_ERROR(OpenCandidate(wanted));
  wanted.set_fingerprint(candidate_->fingerprint());
  own->mutable_notes()->Add(candidate_->notes.begin(), candidate_->notes.end());
  response.mutable_differences()->Add(candidate_->differences.begin(),
                                      candidate_->differences.end());
  BALLAST_RETURN_IF_ERROR(AskAll(
      v1::AgreeRequest::PHASE_CHECK, wanted, kCheckTime,
      [&](const std::string& server,
          const v1::AgreeResponse& answer) -> absl::Status {
        v1::ChangeResponse::Server* const asked = response.add_servers();
        asked->set_address(server);
        asked->set_earliest_step(answer.earliest_step());
        *asked->mutable_notes() = answer.notes();
        if (answer.fingerprint() == wanted.fingerprint()) {
          return absl::OkStatus();
        }
        return absl::FailedPreconditionError(absl::StrCat(
            "the change has fingerprint ", answer.fingerprint(), " there and ",
            wanted.fingerprint(), " at server ", settings_.name,
            ": their files (data, index, recipe, tokenizer) or releases "
            "differ"));
      }));
  std::sort(
      response.mutable_servers()->pointer_begin() + 1,
      response.mutable_servers()->pointer_end(),
      [](const auto* a, const auto* b) { return a->address() < b->address(); });
  *response.mutable_revision() = wanted;
  response.mutable_revision()->clear_config();
  response.mutable_revision()->set_number(0);
  return response;
}

absl::StatusOr<v1::ChangeResponse> RevisionKeeper::MakeChange(
    const v1::ChangeRequest& request) {
  v1::ConfigRevision wanted;
  absl::StatusOr<v1::ChangeResponse> checked = CheckChange(request, &wanted);
  if (!checked.ok()) return NothingChanged(checked.status());
  if (request.dry_run()) return checked;
  v1::ChangeResponse response = *std::move(checked);
  v1::ConfigRevision attempt;
  {
    // The gate calls for the book, and never the other way round.
    const uint64_t reached = gate_.reached_below();
    absl::StatusOr<v1::RevisionBook> book = [&] {
      MutexLock lock(&book_mutex_);
      return agreement_.Begin(wanted, reached, &attempt);
    }();
    if (!book.ok()) return NothingChanged(book.status());
    const absl::Status begun = Write(*std::move(book));
    if (!begun.ok()) return NothingChanged(begun);
    MutexLock lock(&book_mutex_);
    agreement_.SetUnderWay(attempt.attempt());
  }
  const auto end_attempt = [&] {
    MutexLock lock(&book_mutex_);
    agreement_.SetUnderWay(0);
  };
  const auto nothing = [](const std::string&, const v1::AgreeResponse&) {
    return absl::OkStatus();
  };
  absl::Status agreed = Prepare(attempt);
  if (agreed.ok()) {
    agreed =
        AskAll(v1::AgreeRequest::PHASE_PREPARE, attempt, kPrepareTime, nothing);
  }
  if (!agreed.ok()) {
    const absl::Status aborted = Abort(attempt);
    end_attempt();
    if (!aborted.ok()) LogWarning(aborted.message());
    AskAll(v1::AgreeRequest::PHASE_ABORT, attempt, kTellTime, nothing)
        .IgnoreError();  // they ask
    LogWarning(Describe(attempt), " is refused: ", agreed.message());
    return NothingChanged(agreed);
  }
  // The decision: the change holds once this is on the disk.
  const absl::Status decided = Commit(attempt);
  if (!decided.ok()) {
    LogError("whether ", Describe(attempt),
             " holds is not known: ", decided.message());
    return absl::UnavailableError(absl::StrCat(
        "the decision could not be written, and all servers wait before step ",
        attempt.first_step(), ": ", decided.message(), ". Restart server ",
        settings_.name,
        " when its disk is well; then the change holds or not, "
        "and `ballastctl status` says which"));
  }
  end_attempt();
  const absl::Status applied = ApplyBook();
  UpdateGate();
  const absl::Status told =
      AskAll(v1::AgreeRequest::PHASE_COMMIT, attempt, kTellTime, nothing);
  if (!told.ok()) {
    LogWarning(Describe(attempt),
               " holds; it asks for it when it can: ", told.message());
  }
  BALLAST_RETURN_IF_ERROR(applied);
  *response.mutable_revision() = attempt;
  response.mutable_revision()->clear_config();
  return response;
}

std::optional<absl::Status> RevisionKeeper::LearnFrom(
    const std::string& server) {
  v1::GetRevisionsRequest request;
  {
    MutexLock lock(&book_mutex_);
    request.set_have(agreement_.book().revisions_size());
  }
  absl::StatusOr<v1::GetRevisionsResponse> answer =
      peers_->GetRevisions(server, request, kTellTime);
  if (!answer.ok()) return std::nullopt;
  answer->set_server(server);
  return Learn(server, *std::move(answer));
}

absl::Status RevisionKeeper::Learn(const std::string& server,
                                   v1::GetRevisionsResponse answer) {
  const uint64_t reached = gate_.reached_below();
  std::optional<v1::RevisionBook> book;
  std::string undecided;
  bool knows;
  {
    MutexLock lock(&book_mutex_);
    BALLAST_ASSIGN_OR_RETURN(
        book, agreement_.Learn(answer, server == settings_.decider, reached));
    if (server == settings_.decider) {
      undecided = agreement_.WhyUndecided(answer);
    }
    knows = agreement_.knows();
  }
  if (!undecided.empty() && std::exchange(said_, undecided) != undecided) {
    LogError(undecided);
  }
  if (book.has_value()) BALLAST_RETURN_IF_ERROR(Write(*std::move(book)));
  // A server without the key keeps nothing, and takes part in no change.
  if (answer.knows() || !answer.keeps()) to_know_.erase(server);
  if (knows || !RevisionAgreement::IsComplete(answer)) {
    return absl::OkStatus();
  }
  // A server that has no file either knows nothing and hides nothing.
  others_reached_ = std::max(others_reached_, answer.reached_below());
  heard_.insert(server);
  if (heard_.size() < settings_.peers.size()) return absl::OkStatus();
  // Of a job that has begun, this server may have served as much as the others,
  // and a little more.
  const uint64_t below =
      others_reached_ == 0 ? 0 : others_reached_ + RevisionAgreement::kLost;
  v1::RevisionBook complete;
  {
    MutexLock lock(&book_mutex_);
    complete = agreement_.Complete(below);
  }
  BALLAST_RETURN_IF_ERROR(Write(std::move(complete)));
  gate_.Raise(below);
  LogInfo("all other servers have told the job's changes");
  return absl::OkStatus();
}

void RevisionKeeper::Look() {
  bool waits = !fault_.ok() || !apply_fault_.ok();
  bool knows;
  std::optional<v1::ConfigRevision> own_prepared;
  {
    MutexLock lock(&book_mutex_);
    knows = agreement_.knows();
    waits |= !knows || !to_know_.empty() || agreement_.book().has_prepared();
    // An abort that could not be written.
    if (decides() && agreement_.book().has_prepared() &&
        agreement_.under_way() == 0) {
      own_prepared = agreement_.book().prepared();
    }
  }
  const absl::Time now = clock_->Now();
  if (now - last_look_ < (waits ? kWaiting / 2 : kQuiet)) return;
  last_look_ = now;
  if (own_prepared.has_value()) Abort(*own_prepared).IgnoreError();
  // What a server that does not answer now has said stays.
  std::optional<absl::Status> fault;
  if (!knows || !to_know_.empty()) {
    for (const std::string& peer : settings_.peers) {
      {
        MutexLock lock(&mutex_);
        if (stopping_) return;
      }
      if (heard_.count(peer) == 0 || to_know_.count(peer) != 0 ||
          peer == settings_.decider) {
        const auto learnt = LearnFrom(peer);
        if (learnt.has_value() && (!fault.has_value() || fault->ok())) {
          fault = learnt;
        }
      }
    }
  } else if (!decides()) {
    fault = LearnFrom(settings_.decider);
  }
  if (fault.has_value() && fault != fault_) {
    if (!fault->ok()) {
      LogError(fault->message(), "; no rank is served while that is so");
    }
    fault_ = *fault;
  }
  ApplyBook().IgnoreError();  // UpdateGate says it
  UpdateGate();
}

}  // namespace ballast
