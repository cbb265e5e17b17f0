#include "server/serve/service/revision_member.h"

#include <google/protobuf/text_format.h>
#include <sys/random.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "proto/schedule/split.h"
#include "server/files/file.h"

namespace ballast {

void RevisedScheduler::Add(uint64_t first_step, const Scheduler* scheduler) {
  // The steps of a revision have positions: ComposeRevision and CheckRevision
  // have seen to that.
  const uint64_t position =
      FirstPosition(scheduler->job(), first_step).value_or(UINT64_MAX);
  MutexLock lock(&mutex_);
  if (clock_ != nullptr) scheduler->FindInParts(clock_);
  revisions_.push_back({first_step, position, scheduler});
}

void RevisedScheduler::FindInParts(Clock* clock) const {
  MutexLock lock(&mutex_);
  clock_ = clock;
  own_->FindInParts(clock);
  for (const Revision& each : revisions_) each.scheduler->FindInParts(clock);
}

const Scheduler& RevisedScheduler::At(uint64_t step) const {
  MutexLock lock(&mutex_);
  for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
    if (each->first_step <= step) return *each->scheduler;
  }
  return *own_;
}

Scheduler::OrderedSample RevisedScheduler::OrderedAt(uint64_t position) const {
  const Scheduler* scheduler = own_;
  {
    MutexLock lock(&mutex_);
    for (const Revision& each : revisions_) {
      if (each.first_position <= position) scheduler = each.scheduler;
    }
  }
  return scheduler->OrderedAt(position);
}

std::vector<v1::Revision> RevisedScheduler::revisions() const {
  MutexLock lock(&mutex_);
  std::vector<v1::Revision> revisions;
  for (const Revision& each : revisions_) {
    v1::Revision& revision = revisions.emplace_back();
    revision.set_first_step(each.first_step);
    *revision.mutable_fingerprint() = each.scheduler->fingerprint();
  }
  return revisions;
}

const Scheduler* RevisedScheduler::Find(v1::Split split) const {
  if (split == job().split()) return this;
  return own_->OfSplit(split).value_or(this);
}

absl::StatusOr<std::unique_ptr<RevisionMember>> RevisionMember::Create(
    Settings settings, std::unique_ptr<RevisionStore> store,
    std::unique_ptr<RevisedJob> job) {
  BALLAST_ASSIGN_OR_RETURN(
      v1::RevisionBook book,
      store->Read(job->fingerprint(), settings.name, settings.peers.empty()));
  book = RevisionAgreement::Recovered(settings.decider == settings.name,
                                      std::move(book));
  BALLAST_RETURN_IF_ERROR(store->Write(book));
  return std::unique_ptr<RevisionMember>(new RevisionMember(
      std::move(settings), std::move(store), std::move(job), std::move(book)));
}

RevisionMember::RevisionMember(Settings settings,
                               std::unique_ptr<RevisionStore> store,
                               std::unique_ptr<RevisedJob> job,
                               v1::RevisionBook book)
    : settings_(std::move(settings)),
      store_(std::move(store)),
      job_(std::move(job)),
      gate_(book.reached_below(),
            [this](uint64_t below) { return KeepReached(below); }),
      agreement_(std::move(book)) {
  if (!knows()) to_know_.insert(settings_.peers.begin(), settings_.peers.end());
}

absl::Status RevisionMember::Open() {
  BALLAST_RETURN_IF_ERROR(Annotate(OpenMissing(), "serve.revisions"));
  UpdateGate();
  return absl::OkStatus();
}

bool RevisionMember::knows() const {
  MutexLock lock(&book_mutex_);
  return agreement_.knows();
}

uint64_t RevisionMember::changes() const {
  MutexLock lock(&book_mutex_);
  return agreement_.book().revisions_size();
}

v1::GetRevisionsResponse RevisionMember::Known(uint64_t have) const {
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

void RevisionMember::WatchServing(
    std::function<void(const absl::Status&)> on_change) {
  MutexLock lock(&serving_mutex_);
  on_serving_ = std::move(on_change);
  if (on_serving_ != nullptr) on_serving_(serving_);
}

void RevisionMember::Close(const absl::Status& why) {
  gate_.Close(why);
  MutexLock lock(&serving_mutex_);
  if (std::exchange(serving_, why) == why || on_serving_ == nullptr) return;
  on_serving_(why);
}

absl::Status RevisionMember::Write(v1::RevisionBook book) {
  MutexLock lock(&book_mutex_);
  // What is kept of steps may have changed since `book` was made.
  if (!book.has_prepared() ||
      agreement_.book().reached_below() <= book.prepared().first_step()) {
    book.set_reached_below(
        std::max(book.reached_below(), agreement_.book().reached_below()));
  }
  BALLAST_RETURN_IF_ERROR(store_->Write(book));
  agreement_.Keep(std::move(book));
  return absl::OkStatus();
}

absl::Status RevisionMember::KeepReached(uint64_t below) {
  MutexLock lock(&book_mutex_);
  v1::RevisionBook book = agreement_.book();
  book.set_reached_below(below);
  BALLAST_RETURN_IF_ERROR(store_->Write(book));
  agreement_.Keep(std::move(book));
  return absl::OkStatus();
}

absl::Status RevisionMember::OpenCandidate(const v1::ConfigRevision& revision) {
  if (candidate_ != nullptr &&
      candidate_->first_step == revision.first_step() &&
      candidate_->config == revision.config()) {
    return absl::OkStatus();
  }
  candidate_.reset();
  BALLAST_ASSIGN_OR_RETURN(
      candidate_, job_->Open(revision.config(), revision.first_step()));
  return absl::OkStatus();
}

absl::Status RevisionMember::OpenMissing() {
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
      if (candidate_->fingerprint != revision.fingerprint()) {
        const std::string found = candidate_->fingerprint;
        candidate_.reset();
        return absl::FailedPreconditionError(absl::StrCat(
            Describe(revision), " has fingerprint ", revision.fingerprint(),
            " in the job and ", found,
            " here: files of this server (data, index, recipe, tokenizer) or "
            "its release have changed"));
      }
      job_->Apply(std::move(candidate_));
      LogInfo(Describe(revision), " holds; fingerprint ",
              revision.fingerprint());
    }
    return absl::OkStatus();
  }();
  return apply_fault_;
}

absl::Status RevisionMember::Apply() {
  const absl::Status opened = OpenMissing();
  UpdateGate();
  return opened;
}

void RevisionMember::UpdateGate() {
  std::optional<uint64_t> hold;
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
      const uint64_t first = book.revisions(job_->revisions()).first_step();
      hold = std::min(hold.value_or(first), first);
      why =
          absl::StrCat("this server cannot serve it: ", apply_fault_.message());
    }
  }
  if (!gate_.Hold(hold, std::move(why)) && fault_.ok()) {
    // Ruled out by what is asked before each change.
    fault_ = absl::InternalError(
        absl::StrCat("ranks have reached step ", gate_.reached_below(),
                     " of this server, and a change that holds begins at step ",
                     *hold, "; resume from a checkpoint before it"));
    LogError(fault_.message());
  }
  if (!fault_.ok()) {
    Close(fault_);
  } else if (!knows || !to_know_.empty()) {
    std::string missing;
    for (const std::string& peer : settings_.peers) {
      if (!knows && heard_.count(peer) == 0) {
        missing = absl::StrCat(peer, " has not answered yet");
      } else if (missing.empty() && to_know_.count(peer) != 0) {
        missing = absl::StrCat(peer, " does not know them all itself yet");
      }
    }
    Close(absl::UnavailableError(absl::StrCat(
        "serve.revisions was missing, so this server asks all others of the "
        "job for its changes before it serves; server ",
        missing)));
  } else {
    Close(absl::OkStatus());
  }
}

absl::Status RevisionMember::Prepare(const v1::ConfigRevision& revision) {
  BALLAST_RETURN_IF_ERROR(OpenCandidate(revision));
  if (candidate_->fingerprint != revision.fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the change has fingerprint ", revision.fingerprint(),
                     " where it was offered and ", candidate_->fingerprint,
                     " here: the servers' files differ"));
  }
  const absl::Status said = [&]() -> absl::Status {
    // A step that is held stays so.
    uint64_t hold = revision.first_step();
    {
      MutexLock lock(&book_mutex_);
      hold = std::min(hold, agreement_.HoldFrom().value_or(hold));
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

absl::Status RevisionMember::Commit(const v1::ConfigRevision& revision) {
  const uint64_t reached = gate_.reached_below();
  BALLAST_ASSIGN_OR_RETURN(
      std::optional<v1::RevisionBook> book,
      [&]() -> absl::StatusOr<std::optional<v1::RevisionBook>> {
        MutexLock lock(&book_mutex_);
        return agreement_.OnCommit(revision, reached);
      }());
  return book.has_value() ? Write(*std::move(book)) : absl::OkStatus();
}

absl::Status RevisionMember::Abort(const v1::ConfigRevision& revision) {
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

absl::StatusOr<v1::AgreeResponse> RevisionMember::Answer(
    const v1::AgreeRequest& request) {
  const v1::ConfigRevision& revision = request.revision();
  if (request.job() != job_->fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server that decides has fingerprint ", request.job(),
                     ", and ", settings_.name, " ", job_->fingerprint()));
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
      response.set_fingerprint(candidate_->fingerprint);
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
      if (kept.ok()) OpenMissing().IgnoreError();  // UpdateGate says it
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
                       "; is the server that decides of another release?"));
  }
}

absl::StatusOr<v1::ConfigRevision> RevisionMember::Offer(
    const v1::ChangeRequest& request, v1::ChangeResponse* response) {
  v1::ConfigRevision wanted;
  wanted.set_first_step(request.first_step());
  wanted.set_config(request.config());
  const uint64_t reached = gate_.reached_below();
  v1::ChangeResponse::Server* const own = response->add_servers();
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
  wanted.set_fingerprint(candidate_->fingerprint);
  own->mutable_notes()->Add(candidate_->notes.begin(), candidate_->notes.end());
  response->mutable_differences()->Add(candidate_->differences.begin(),
                                       candidate_->differences.end());
  return wanted;
}

absl::StatusOr<v1::ConfigRevision> RevisionMember::Begin(
    const v1::ConfigRevision& wanted) {
  v1::ConfigRevision attempt;
  // The gate calls for the book, and never the other way round.
  const uint64_t reached = gate_.reached_below();
  BALLAST_ASSIGN_OR_RETURN(v1::RevisionBook book, [&] {
    MutexLock lock(&book_mutex_);
    return agreement_.Begin(wanted, reached, &attempt);
  }());
  BALLAST_RETURN_IF_ERROR(Write(std::move(book)));
  MutexLock lock(&book_mutex_);
  agreement_.SetUnderWay(attempt.attempt());
  return attempt;
}

void RevisionMember::EndAttempt() {
  MutexLock lock(&book_mutex_);
  agreement_.SetUnderWay(0);
}

bool RevisionMember::waits() const {
  MutexLock lock(&book_mutex_);
  return !fault_.ok() || !apply_fault_.ok() || !agreement_.knows() ||
         !to_know_.empty() || agreement_.book().has_prepared();
}

std::vector<std::string> RevisionMember::ToAsk() const {
  if (knows() && to_know_.empty()) {
    if (decides()) return {};
    return {settings_.decider};
  }
  std::vector<std::string> peers;
  for (const std::string& peer : settings_.peers) {
    if (heard_.count(peer) == 0 || to_know_.count(peer) != 0 ||
        peer == settings_.decider) {
      peers.push_back(peer);
    }
  }
  return peers;
}

absl::Status RevisionMember::Learn(const std::string& server,
                                   const v1::GetRevisionsResponse& answer) {
  if (!answer.keeps()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", server,
        " has no serve.revisions, so it knows no change of the job, and this "
        "server cannot learn from it; give it the key and restart it"));
  }
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
  if (answer.knows()) to_know_.erase(server);
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
  LogInfo("all other servers have said which changes the job has");
  return absl::OkStatus();
}

void RevisionMember::EndLook(const absl::Status& fault) {
  if (fault != fault_ && !fault.ok()) {
    LogError(fault.message(), "; no rank is served while that is so");
  }
  fault_ = fault;
  Apply().IgnoreError();  // UpdateGate says it
}

void RevisionMember::FinishLeft() {
  v1::ConfigRevision left;
  bool is_decided = false;
  {
    MutexLock lock(&book_mutex_);
    if (!decides() || !agreement_.book().has_prepared()) return;
    left = agreement_.book().prepared();
    // All servers have said yes: an attempt that fails ends before the next.
    is_decided = agreement_.under_way() == left.attempt();
  }
  // Tried again at the next look.
  const absl::Status written = is_decided ? Commit(left) : Abort(left);
  if (is_decided && written.ok()) EndAttempt();
}

namespace {

// 64 changes of a configuration of 1 MiB, whose text takes at most four
// characters a byte.
constexpr size_t kMaxFileBytes = size_t{300} << 20;

absl::StatusOr<std::string> DrawName() {
  char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return absl::InternalError("the system gives no random bytes");
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

// The changes are numbered from 1, and each begins after the one before.
bool IsInOrder(const v1::RevisionBook& book) {
  uint64_t number = 0, step = 0;
  for (const v1::ConfigRevision& revision : book.revisions()) {
    if (revision.number() != ++number || revision.first_step() <= step) {
      return false;
    }
    step = revision.first_step();
  }
  return true;
}

class FileRevisionStore final : public RevisionStore {
 public:
  explicit FileRevisionStore(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<v1::RevisionBook> Read(const std::string& job,
                                        const std::string& server,
                                        bool alone) const override {
    v1::RevisionBook book;
    absl::StatusOr<std::string> text = ReadSmallFile(path_, kMaxFileBytes);
    if (absl::IsNotFound(text.status())) {
      book.set_job(job);
      book.set_server(server);
      BALLAST_ASSIGN_OR_RETURN(*book.mutable_book(), DrawName());
      book.set_complete(alone);
      return book;
    }
    BALLAST_RETURN_IF_ERROR(Annotate(text.status(), "serve.revisions"));
    if (!google::protobuf::TextFormat::ParseFromString(*text, &book) ||
        book.job().empty() || book.book().empty() || !IsInOrder(book)) {
      return absl::DataLossError(
          absl::StrCat("serve.revisions: ", path_,
                       " is no file of revisions, or damaged; restore it, or "
                       "remove it: "
                       "then this server asks all others before it serves"));
    }
    if (book.job() != job) {
      return absl::FailedPreconditionError(absl::StrCat(
          "serve.revisions: ", path_, " is of a job with fingerprint ",
          book.job(), ", and this configuration has ", job,
          "; start the job with the configuration that it was started with, "
          "since the file has the changes, or move the file away to start "
          "another job"));
    }
    if (book.server() != server) {
      return absl::FailedPreconditionError(absl::StrCat(
          "serve.revisions: ", path_, " is the file of server ", book.server(),
          ", and this is ", server,
          "; each server needs its own: a path on a disk of its machine, or "
          "another name"));
    }
    return book;
  }

  absl::Status Write(const v1::RevisionBook& book) override {
    std::string text;
    if (!google::protobuf::TextFormat::PrintToString(book, &text)) {
      return absl::InternalError("serve.revisions cannot be printed");
    }
    return Annotate(WriteFileAtomically(path_, {text}), "serve.revisions");
  }

 private:
  const std::string path_;
};

}  // namespace

std::unique_ptr<RevisionStore> MakeFileRevisionStore(std::string path) {
  return std::make_unique<FileRevisionStore>(std::move(path));
}

}  // namespace ballast
