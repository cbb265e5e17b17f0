#ifndef BALLAST_CLIENT_REVISION_CHAIN_H_
#define BALLAST_CLIENT_REVISION_CHAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The fingerprints that a rank accepts: of the job's own configuration, and of
// the changes of the running job that its servers have reported, each from a
// step on (docs/changes.md). Thread-safe.
class RevisionChain {
 public:
  // `own` is Fingerprint.hash of the job's own configuration.
  explicit RevisionChain(std::string own,
                         absl::Span<const v1::Revision> revisions = {});

  // The hash that the schedule of `step` must carry.
  std::string HashAt(uint64_t step) const;

  // The rank has taken a schedule of `step`.
  void Note(uint64_t step);

  // Adds the changes that a server reports. Errors: FAILED_PRECONDITION (it is
  // of another job; it has another change where the rank knows one; a new one
  // begins at a step that the rank has taken). Then nothing is added.
  absl::Status Extend(const v1::AttachResponse& told);

  // The changes that begin before `step`.
  std::vector<v1::Revision> Before(uint64_t step) const;

 private:
  const std::string own_;
  mutable Mutex mutex_;
  std::vector<v1::Revision> revisions_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_below_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Whether the changes of one list are the first ones of the other.
bool GoOnFrom(absl::Span<const v1::Revision> a,
              absl::Span<const v1::Revision> b);

// As CheckSameData (proto/schedule/fingerprint.h), where the job was or is
// changed while it runs: the data of each step before `next_step` are compared
// by the revision of that step on either side. A configuration that contains
// what a running job was changed to has the same data.
absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           absl::Span<const v1::Revision> checkpoint_revisions,
                           const v1::AttachResponse& server,
                           absl::string_view server_name, v1::Split split,
                           uint64_t next_step);

}  // namespace ballast

#endif  // BALLAST_CLIENT_REVISION_CHAIN_H_
