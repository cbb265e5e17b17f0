#include "server/serve/service/revision_agreement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

bool IsSameAttempt(const v1::ConfigRevision& a, const v1::ConfigRevision& b) {
  return a.book() == b.book() && a.attempt() == b.attempt();
}

bool Has(const google::protobuf::RepeatedPtrField<v1::ConfigRevision>& list,
         const v1::ConfigRevision& revision) {
  return std::any_of(list.begin(), list.end(),
                     [&](const v1::ConfigRevision& each) {
                       return IsSameAttempt(each, revision);
                     });
}

// The book with one more change.
v1::RevisionBook With(v1::RevisionBook book,
                      const v1::ConfigRevision& revision) {
  *book.add_revisions() = revision;
  book.clear_prepared();
  return book;
}

absl::Status Passed(const v1::ConfigRevision& revision,
                    uint64_t reached_below) {
  return absl::FailedPreconditionError(absl::StrCat(
      Describe(revision),
      " holds in the job, and this server, which did not know it, has served "
      "steps up to ",
      reached_below - 1,
      " without it; has serve.revisions been lost or replaced? Stop the ranks, "
      "restart this server, and resume from a checkpoint at step ",
      revision.first_step(), " or before"));
}

}  // namespace

std::string Describe(const v1::ConfigRevision& revision) {
  return absl::StrCat("change ", revision.number(), " from step ",
                      revision.first_step());
}

v1::RevisionBook RevisionAgreement::Recovered(bool decides,
                                              v1::RevisionBook book) {
  if (decides) book.clear_prepared();
  return book;
}

v1::RevisionBook RevisionAgreement::Complete(uint64_t reached_below) const {
  v1::RevisionBook book = book_;
  book.set_complete(true);
  book.set_reached_below(std::max(book.reached_below(), reached_below));
  return book;
}

std::optional<uint64_t> RevisionAgreement::HoldFrom() const {
  if (!knows()) return 0;
  if (book_.has_prepared()) return book_.prepared().first_step();
  return std::nullopt;
}

uint64_t RevisionAgreement::EarliestStep(uint64_t reached_below) const {
  uint64_t earliest = reached_below + kMargin;
  if (book_.revisions_size() > 0) {
    earliest = std::max(earliest, book_.revisions().rbegin()->first_step() + 1);
  }
  return earliest;
}

absl::Status RevisionAgreement::Check(uint64_t number, uint64_t first_step,
                                      uint64_t reached_below) const {
  if (!knows()) {
    return absl::UnavailableError(
        "this server has not heard of all other servers yet whether the job "
        "has been changed");
  }
  const uint64_t next = book_.revisions_size() + 1;
  if (number != next) {
    return absl::FailedPreconditionError(
        absl::StrCat("this would be change ", number, " of the job, and here ",
                     next, "; the server that has fewer catches up by itself"));
  }
  if (next > kMaxRevisions) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has ", next - 1,
                     " changes, the most that it can have; "
                     "restart it with a configuration that contains them"));
  }
  if (first_step < EarliestStep(reached_below)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the change would begin at step ", first_step,
                     ", and the earliest step is ", EarliestStep(reached_below),
                     ": ranks have reached those before, or an earlier change "
                     "begins there"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RevisionBook> RevisionAgreement::Begin(
    const v1::ConfigRevision& wanted, uint64_t reached_below,
    v1::ConfigRevision* next) const {
  if (under_way_ != 0 || book_.has_prepared()) {
    return absl::AbortedError(
        "another change is being agreed; try again when it is decided");
  }
  *next = wanted;
  next->set_number(book_.revisions_size() + 1);
  next->set_book(book_.book());
  next->set_attempt(book_.attempts() + 1);
  BALLAST_RETURN_IF_ERROR(
      Check(next->number(), next->first_step(), reached_below));
  v1::RevisionBook book = book_;
  book.set_attempts(next->attempt());
  return book;
}

absl::StatusOr<v1::RevisionBook> RevisionAgreement::Prepare(
    const v1::ConfigRevision& revision, uint64_t reached_below) const {
  BALLAST_RETURN_IF_ERROR(
      Check(revision.number(), revision.first_step(), reached_below));
  if (book_.has_prepared()) {
    const v1::ConfigRevision& prepared = book_.prepared();
    // The server that decides begins an attempt only when all before are
    // decided, and with this number none of them holds.
    const bool is_later = prepared.book() == revision.book() &&
                          prepared.attempt() <= revision.attempt();
    if (!is_later) {
      return absl::AbortedError(
          absl::StrCat(Describe(prepared), " is not decided yet here"));
    }
  }
  v1::RevisionBook book = book_;
  *book.mutable_prepared() = revision;
  // None of its steps has been reached, although more were kept ahead.
  book.set_reached_below(std::min(book.reached_below(), revision.first_step()));
  return book;
}

absl::StatusOr<std::optional<v1::RevisionBook>> RevisionAgreement::OnCommit(
    const v1::ConfigRevision& revision, uint64_t reached_below) const {
  if (Has(book_.revisions(), revision)) {
    return std::optional<v1::RevisionBook>();
  }
  const uint64_t next = book_.revisions_size() + 1;
  if (revision.number() != next) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(revision),
                     " holds in the job, and the next one here is ", next));
  }
  const bool said_yes =
      book_.has_prepared() && IsSameAttempt(book_.prepared(), revision);
  if (!said_yes && revision.first_step() < reached_below) {
    return Passed(revision, reached_below);
  }
  return std::make_optional(With(book_, revision));
}

std::optional<v1::RevisionBook> RevisionAgreement::OnAbort(
    const v1::ConfigRevision& revision) const {
  if (!book_.has_prepared() || !IsSameAttempt(book_.prepared(), revision)) {
    return std::nullopt;
  }
  v1::RevisionBook book = book_;
  book.clear_prepared();
  return book;
}

absl::StatusOr<std::optional<v1::RevisionBook>> RevisionAgreement::Learn(
    const v1::GetRevisionsResponse& other, bool other_decides,
    uint64_t reached_below) const {
  if (!other.job().empty() && other.job() != book_.job()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", other.server(), " is of another job: fingerprint ",
        other.job(), ", here ", book_.job()));
  }
  const int common = std::min(book_.revisions_size(), other.revisions_size());
  for (int i = 0; i < common; ++i) {
    if (IsSameAttempt(book_.revisions(i), other.revisions(i))) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", other.server(), " has ", Describe(other.revisions(i)),
        " where this server has ", Describe(book_.revisions(i)),
        ": they were agreed apart; stop the job and give all servers one "
        "serve.revisions"));
  }
  v1::RevisionBook book = book_;
  for (int i = common; i < other.revisions_size(); ++i) {
    const v1::ConfigRevision& revision = other.revisions(i);
    const bool said_yes =
        book.has_prepared() && IsSameAttempt(book.prepared(), revision);
    if (!said_yes && revision.first_step() < reached_below) {
      return Passed(revision, reached_below);
    }
    book = With(std::move(book), revision);
  }
  if (book.has_prepared() && other_decides && WhyUndecided(other).empty() &&
      other.under_way() != book.prepared().attempt() &&
      other.attempts() >= book.prepared().attempt()) {
    book.clear_prepared();
  }
  const bool changed = book.revisions_size() != book_.revisions_size() ||
                       book.has_prepared() != book_.has_prepared();
  return changed ? std::make_optional(std::move(book)) : std::nullopt;
}

std::string RevisionAgreement::WhyUndecided(
    const v1::GetRevisionsResponse& decider) const {
  if (!book_.has_prepared() || decider.book() == book_.prepared().book()) {
    return "";
  }
  return absl::StrCat("server ", decider.server(),
                      ", which decides, has lost its file "
                      "serve.revisions and does not know whether ",
                      Describe(book_.prepared()),
                      " holds; restore the file, or stop the job");
}

}  // namespace ballast
