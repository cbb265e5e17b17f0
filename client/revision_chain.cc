#include "client/revision_chain.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/fingerprint.h"

namespace ballast {
namespace {

bool IsSame(const v1::Revision& a, const v1::Revision& b) {
  return a.first_step() == b.first_step() &&
         a.fingerprint().hash() == b.fingerprint().hash();
}

// The fingerprint of `step`.
const v1::Fingerprint& At(const v1::Fingerprint& own,
                          absl::Span<const v1::Revision> revisions,
                          uint64_t step) {
  const v1::Fingerprint* found = &own;
  for (const v1::Revision& revision : revisions) {
    if (revision.first_step() <= step) found = &revision.fingerprint();
  }
  return *found;
}

}  // namespace

bool GoOnFrom(absl::Span<const v1::Revision> a,
              absl::Span<const v1::Revision> b) {
  return std::equal(a.begin(), a.begin() + std::min(a.size(), b.size()),
                    b.begin(), IsSame);
}

RevisionChain::RevisionChain(std::string own,
                             absl::Span<const v1::Revision> revisions)
    : own_(std::move(own)), revisions_(revisions.begin(), revisions.end()) {}

std::string RevisionChain::HashAt(uint64_t step) const {
  MutexLock lock(&mutex_);
  for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
    if (each->first_step() <= step) return each->fingerprint().hash();
  }
  return own_;
}

void RevisionChain::Note(uint64_t step) {
  MutexLock lock(&mutex_);
  taken_below_ = std::max(taken_below_, step + 1);
}

absl::Status RevisionChain::Extend(const v1::AttachResponse& told) {
  if (told.fingerprint().hash() != own_) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", told.server(), " has fingerprint ",
                     told.fingerprint().hash(), ", wanted ", own_));
  }
  MutexLock lock(&mutex_);
  std::vector<v1::Revision> revisions(told.revisions().begin(),
                                      told.revisions().end());
  if (!GoOnFrom(revisions_, revisions)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", told.server(),
        " has other changes of the running job than this rank has been told"));
  }
  if (revisions.size() <= revisions_.size()) return absl::OkStatus();
  const v1::Revision& first = revisions[revisions_.size()];
  if (first.first_step() < taken_below_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job was changed from step ", first.first_step(),
        " on, and this rank has taken step ", taken_below_ - 1,
        " without that; resume all ranks from a checkpoint at step ",
        first.first_step(), " or before"));
  }
  revisions_ = std::move(revisions);
  return absl::OkStatus();
}

std::vector<v1::Revision> RevisionChain::Before(uint64_t step) const {
  MutexLock lock(&mutex_);
  std::vector<v1::Revision> before;
  for (const v1::Revision& revision : revisions_) {
    if (revision.first_step() < step) before.push_back(revision);
  }
  return before;
}

absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           absl::Span<const v1::Revision> checkpoint_revisions,
                           const v1::AttachResponse& server,
                           absl::string_view server_name, v1::Split split,
                           uint64_t next_step) {
  const std::vector<v1::Revision> server_revisions(server.revisions().begin(),
                                                   server.revisions().end());
  // The steps from which one side has another revision.
  std::set<uint64_t> begins = {0};
  for (const auto& revisions :
       {checkpoint_revisions, absl::MakeConstSpan(server_revisions)}) {
    for (const v1::Revision& revision : revisions) {
      if (revision.first_step() < next_step) {
        begins.insert(revision.first_step());
      }
    }
  }
  for (auto begin = begins.begin(); begin != begins.end(); ++begin) {
    const auto next = std::next(begin);
    BALLAST_RETURN_IF_ERROR(CheckSameData(
        At(checkpoint, checkpoint_revisions, *begin),
        At(server.fingerprint(), server_revisions, *begin), server_name, split,
        next == begins.end() ? next_step : *next));
  }
  return absl::OkStatus();
}

}  // namespace ballast
