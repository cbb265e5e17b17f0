#ifndef BALLAST_PROTO_SCHEDULE_FINGERPRINT_H_
#define BALLAST_PROTO_SCHEDULE_FINGERPRINT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Makes the fingerprint of `entries` (key -> value): the XXH3-128 over all keys
// and values in ascending order of key, each preceded by its length, the same
// over only the data keys of `split`, and for train the hash of the data before
// each step of a FromStepKey. Equal on every machine.
v1::Fingerprint MakeFingerprint(
    const std::map<std::string, std::string>& entries,
    v1::Split split = v1::SPLIT_TRAIN);

// Returns whether `key` belongs to the data of `split`: it determines which
// sample has which position there or what the sample contains. The other keys
// are layout: dp sizes, servers, the micro-batch, balance, packing, which
// images pass through encoded, rules of a release, and where the data end
// (topology, balance, packing, delivery, batch.micro, order.epochs); or they
// name sources of another split ("splits.valid.index.chat"; train's keys are
// "sources.0000" and "index.chat").
bool IsDataKey(absl::string_view key, v1::Split split = v1::SPLIT_TRAIN);

// The key of an entry that alters no step of train before `step`, which is
// below 10^10: "from_step.0000010000.order.skips". It belongs to the data of
// train alone.
std::string FromStepKey(uint64_t step, absl::string_view key);

// The step of a FromStepKey; nullopt for any other key.
std::optional<uint64_t> StepOfKey(absl::string_view key);

// The hash of the data of the steps before `next_step`
// (Fingerprint.data_before).
std::string DataHashBefore(const v1::Fingerprint& fingerprint,
                           uint64_t next_step);

// The prefix of the keys that name sources of `split`: "splits.valid."; empty
// for train.
std::string SplitPrefix(v1::Split split);

// Describes a mismatch by both hashes and the first key, in ascending order,
// whose values differ:
//   fingerprint 0123… of A differs from 4567… of B; first differing key:
//   batch.micro is 32 with A and 16 with B
// If either has no entries (e.g. from a checkpoint), only the hashes are named.
std::string DescribeDifference(const v1::Fingerprint& a,
                               absl::string_view a_name,
                               const v1::Fingerprint& b,
                               absl::string_view b_name);

// Returns OK if the hashes are equal or either is empty, otherwise
// FAILED_PRECONDITION with DescribeDifference.
absl::Status CheckSameFingerprint(const v1::Fingerprint& a,
                                  absl::string_view a_name,
                                  const v1::Fingerprint& b,
                                  absl::string_view b_name);

// Checks that a run may resume at `next_step`, with servers of fingerprint
// `server`, from a checkpoint made under `checkpoint`: the data of the steps
// before are the same, so the step begins at the same position; the layout and
// the data of later steps may differ. Returns OK also if either is empty,
// otherwise FAILED_PRECONDITION with both data hashes and, if the checkpoint
// has entries, the first differing data key; if that key alters a step before
// `next_step`, also what to do. Both are fingerprints of `split`. By default
// the data of all steps must be the same.
absl::Status CheckSameData(
    const v1::Fingerprint& checkpoint, const v1::Fingerprint& server,
    absl::string_view server_name, v1::Split split = v1::SPLIT_TRAIN,
    uint64_t next_step = std::numeric_limits<uint64_t>::max());

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_FINGERPRINT_H_
