#ifndef BALLAST_PROTO_FINGERPRINT_H_
#define BALLAST_PROTO_FINGERPRINT_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The fingerprint of what `entries` (key -> value) say: their XXH3-128, each
// key and value preceded by its length, in ascending order of key. Equal on
// every machine.
v1::Fingerprint MakeFingerprint(
    const std::map<std::string, std::string>& entries);

// Names both hashes and the first key, in ascending order, whose values differ:
//   fingerprint 0123… of A differs from 4567… of B; first differing key:
//   batch.micro is 32 with A and 16 with B
// A fingerprint without entries (from a checkpoint, say) gives the hashes only.
std::string DescribeDifference(const v1::Fingerprint& a, absl::string_view a_name,
                               const v1::Fingerprint& b,
                               absl::string_view b_name);

// OK when the hashes are equal or either is empty; otherwise
// FAILED_PRECONDITION with DescribeDifference.
absl::Status CheckSameFingerprint(const v1::Fingerprint& a,
                                  absl::string_view a_name,
                                  const v1::Fingerprint& b,
                                  absl::string_view b_name);

}  // namespace ballast

#endif  // BALLAST_PROTO_FINGERPRINT_H_
