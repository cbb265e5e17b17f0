#ifndef BALLAST_PROTO_SCHEDULE_FINGERPRINT_H_
#define BALLAST_PROTO_SCHEDULE_FINGERPRINT_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The fingerprint of what `entries` (key -> value) say: their XXH3-128, each
// key and value preceded by its length, in ascending order of key; and the same
// of the data keys among them. Equal on every machine.
v1::Fingerprint MakeFingerprint(
    const std::map<std::string, std::string>& entries);

// Whether `key` is part of what the data are: which sample stands at which
// position, and what is in it. The others are layout: dp sizes, servers, the
// micro-batch, balance, packing, and where the data end (topology, balance,
// packing, batch.micro, order.epochs).
bool IsDataKey(absl::string_view key);

// Names both hashes and the first key, in ascending order, whose values differ:
//   fingerprint 0123… of A differs from 4567… of B; first differing key:
//   batch.micro is 32 with A and 16 with B
// A fingerprint without entries (from a checkpoint, say) gives the hashes only.
std::string DescribeDifference(const v1::Fingerprint& a,
                               absl::string_view a_name,
                               const v1::Fingerprint& b,
                               absl::string_view b_name);

// OK when the hashes are equal or either is empty; otherwise
// FAILED_PRECONDITION with DescribeDifference.
absl::Status CheckSameFingerprint(const v1::Fingerprint& a,
                                  absl::string_view a_name,
                                  const v1::Fingerprint& b,
                                  absl::string_view b_name);

// Whether a run may go on from a checkpoint that was made under `checkpoint`
// with servers of `server`: the data are the same, so step s begins at the same
// position; the layout may be another. OK also where either is empty. Otherwise
// FAILED_PRECONDITION with both data hashes and, where the checkpoint has
// entries, the first differing data key.
absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           const v1::Fingerprint& server,
                           absl::string_view server_name);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_FINGERPRINT_H_
