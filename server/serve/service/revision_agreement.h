#ifndef BALLAST_SERVER_SERVE_SERVICE_REVISION_AGREEMENT_H_
#define BALLAST_SERVER_SERVE_SERVICE_REVISION_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// How the servers of a job agree on a change
// (docs/decisions/0086-revisions.md):
//
//   the one that decides      every server, itself included
//   Begin  -- prepare ------> Prepare: holds the steps of the change, says yes
//          <------ yes or no
//   Commit or Abort -- so --> OnCommit, OnAbort: the change holds, or nothing
//   has
//                             changed; serves its steps
//
// A server that has said yes and hears nothing asks the one that decides
// (Learn) and waits. Values in, decisions out: each function returns the book
// that must be on the disk before anything follows from it, and changes nothing
// itself; Keep records that it is there. No threads, no clock:
// thread-compatible.
class RevisionAgreement {
 public:
  // Changes of one job.
  static constexpr int kMaxRevisions = 64;
  // A change begins at least so many steps after those that ranks have reached,
  // so that no rank waits while servers agree.
  static constexpr uint64_t kMargin = 4;
  // Steps after those that the other servers have reached which a server may
  // have reached that has lost its file: ranks wait for each other in every
  // step, so it is what servers and ranks prefetch.
  static constexpr uint64_t kLost = 256;

  // `book` is on the disk, as from Recovered.
  explicit RevisionAgreement(v1::RevisionBook book) : book_(std::move(book)) {}

  // The book of a server that starts: of the one that decides, an attempt that
  // its last run left without a decision has failed.
  static v1::RevisionBook Recovered(bool decides, v1::RevisionBook book);

  // The book is on the disk.
  void Keep(v1::RevisionBook book) { book_ = std::move(book); }
  const v1::RevisionBook& book() const { return book_; }

  // Whether the server knows every change that may hold. One that does not
  // serves no rank.
  bool knows() const { return book_.complete(); }
  // All other servers have said what they know; the highest of their
  // `reached_below` is given, since this server may have served as many steps
  // before it lost its file.
  v1::RevisionBook Complete(uint64_t reached_below) const;
  // Whether the answer of another server counts for this: no attempt is under
  // way there. This server may have said yes to it before it lost its file.
  static bool IsComplete(const v1::GetRevisionsResponse& other) {
    return other.under_way() == 0;
  }

  // The first step that may not be served now: 0 unless the server knows the
  // changes; the first of a change without a decision. nullopt: all may be.
  std::optional<uint64_t> HoldFrom() const;

  // The first step from which this server can change. `reached_below` as in
  // StepGate.
  uint64_t EarliestStep(uint64_t reached_below) const;

  // Whether the server can take part in a change from `first_step` on. Errors:
  // FAILED_PRECONDITION, ABORTED (another change is being agreed), UNAVAILABLE
  // (it does not know all changes yet).
  absl::Status Check(uint64_t number, uint64_t first_step,
                     uint64_t reached_below) const;

  // --- the server that decides ---

  // Begins an attempt with the next number; `first_step`, `fingerprint` and
  // `config` come from `wanted`. `next` is the attempt. Errors: as Check.
  absl::StatusOr<v1::RevisionBook> Begin(const v1::ConfigRevision& wanted,
                                         uint64_t reached_below,
                                         v1::ConfigRevision* next) const;
  // The attempt of a kept Begin is under way until the kept Commit or Abort, or
  // the end of the process.
  void SetUnderWay(uint64_t attempt) { under_way_ = attempt; }
  uint64_t under_way() const { return under_way_; }

  // --- every server ---

  // Says yes to `revision`. The steps from its first one on are held already,
  // and none has been reached. Errors: as Check; the answer is no.
  absl::StatusOr<v1::RevisionBook> Prepare(const v1::ConfigRevision& revision,
                                           uint64_t reached_below) const;
  // The decision. nullopt: it has been taken before. A server that has not said
  // yes to this attempt, since it has lost its file, takes it over if no rank
  // has reached its steps. Errors: FAILED_PRECONDITION (a rank has; another
  // change has that number).
  absl::StatusOr<std::optional<v1::RevisionBook>> OnCommit(
      const v1::ConfigRevision& revision, uint64_t reached_below) const;
  std::optional<v1::RevisionBook> OnAbort(
      const v1::ConfigRevision& revision) const;

  // What follows from what another server knows: from the one that decides the
  // decision of `prepared`, and from any the changes that this server lacks.
  // nullopt: nothing. Errors: FAILED_PRECONDITION (the two have different
  // changes, or a rank has reached the steps of one that this server lacks; it
  // must serve no rank).
  absl::StatusOr<std::optional<v1::RevisionBook>> Learn(
      const v1::GetRevisionsResponse& other, bool other_decides,
      uint64_t reached_below) const;

  // Why the decision is not known although the server that decides has
  // answered; empty if it is still to come.
  std::string WhyUndecided(const v1::GetRevisionsResponse& decider) const;

 private:
  v1::RevisionBook book_;
  uint64_t under_way_ = 0;
};

// "change 3 from step 12000"
std::string Describe(const v1::ConfigRevision& revision);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_REVISION_AGREEMENT_H_
