#include "proto/schedule/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

constexpr absl::string_view kSplits = "splits.";
constexpr absl::string_view kFromStep = "from_step.";
constexpr size_t kStepDigits = 10;

}  // namespace

std::optional<uint64_t> StepOfKey(absl::string_view key) {
  uint64_t step = 0;
  if (!absl::ConsumePrefix(&key, kFromStep) ||
      !absl::SimpleAtoi(key.substr(0, kStepDigits), &step)) {
    return std::nullopt;
  }
  return step;
}

namespace {

// Whether the entry is about the data of `split` in steps before `next_step`.
bool IsDataBefore(absl::string_view key, v1::Split split, uint64_t next_step) {
  const std::optional<uint64_t> step = StepOfKey(key);
  return IsDataKey(key, split) && (!step.has_value() || *step < next_step);
}

void Append(absl::string_view text, std::string* bytes) {
  uint64_t length = text.size();
  for (int i = 0; i < 8; ++i, length >>= 8) {
    bytes->push_back(static_cast<char>(length & 0xff));
  }
  bytes->append(text.data(), text.size());
}

std::map<std::string, std::string> Entries(const v1::Fingerprint& fingerprint) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : fingerprint.entries()) {
    entries[entry.key()] = entry.value();
  }
  return entries;
}

// Hash of the entries whose keys `wanted` accepts.
template <typename Wanted>
std::string GetHash(const std::map<std::string, std::string>& entries,
                    Wanted wanted) {
  std::string bytes;
  for (const auto& [key, value] : entries) {
    if (!wanted(key)) continue;
    Append(key, &bytes);
    Append(value, &bytes);
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

std::map<std::string, std::string> DataEntries(
    const v1::Fingerprint& fingerprint, v1::Split split, uint64_t next_step) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : fingerprint.entries()) {
    if (IsDataBefore(entry.key(), split, next_step)) {
      entries[entry.key()] = entry.value();
    }
  }
  return entries;
}

struct Difference {
  std::string key, a, b;
};

// The first key, in ascending order over both maps, whose values differ.
std::optional<Difference> FirstDifference(
    const std::map<std::string, std::string>& a,
    const std::map<std::string, std::string>& b) {
  constexpr char kAbsent[] = "absent";
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() || j != b.end()) {
    if (j == b.end() || (i != a.end() && i->first < j->first)) {
      return Difference{i->first, i->second, kAbsent};
    }
    if (i == a.end() || j->first < i->first) {
      return Difference{j->first, kAbsent, j->second};
    }
    if (i->second != j->second) {
      return Difference{i->first, i->second, j->second};
    }
    ++i;
    ++j;
  }
  return std::nullopt;
}

}  // namespace

v1::Fingerprint MakeFingerprint(
    const std::map<std::string, std::string>& entries, v1::Split split) {
  v1::Fingerprint fingerprint;
  for (const auto& [key, value] : entries) {
    v1::Fingerprint::Entry* entry = fingerprint.add_entries();
    entry->set_key(key);
    entry->set_value(value);
  }
  fingerprint.set_hash(
      GetHash(entries, [](const std::string&) { return true; }));
  fingerprint.set_data_hash(GetHash(entries, [split](const std::string& key) {
    return IsDataKey(key, split);
  }));
  if (split != v1::SPLIT_TRAIN) return fingerprint;
  std::optional<uint64_t> last;
  for (const auto& [key, value] : entries) {
    // Ascending, as their keys are.
    const std::optional<uint64_t> step = StepOfKey(key);
    if (!step.has_value() || step == last) continue;
    last = step;
    v1::Fingerprint::DataBefore* before = fingerprint.add_data_before();
    before->set_step(*step);
    before->set_data_hash(GetHash(entries, [&](const std::string& each) {
      return IsDataBefore(each, split, *step);
    }));
  }
  return fingerprint;
}

std::string FromStepKey(uint64_t step, absl::string_view key) {
  return absl::StrCat(kFromStep, absl::Dec(step, absl::kZeroPad10), ".", key);
}

std::string DataHashBefore(const v1::Fingerprint& fingerprint,
                           uint64_t next_step) {
  for (const auto& before : fingerprint.data_before()) {
    if (before.step() >= next_step) return before.data_hash();
  }
  return fingerprint.data_hash();
}

std::string SplitPrefix(v1::Split split) {
  if (split == v1::SPLIT_TRAIN) return "";
  return absl::StrCat(kSplits, SplitName(split), ".");
}

bool IsDataKey(absl::string_view key, v1::Split split) {
  if (absl::StartsWith(key, kSplits)) {
    return split != v1::SPLIT_TRAIN &&
           absl::StartsWith(key, SplitPrefix(split)) &&
           !absl::EndsWith(key, ".batch.micro");
  }
  if (split != v1::SPLIT_TRAIN &&
      (absl::StartsWith(key, "sources.") || absl::StartsWith(key, "index."))) {
    return false;
  }
  if (absl::StartsWith(key, kFromStep) ||
      absl::StartsWith(key, "batch.rampup.")) {
    return split == v1::SPLIT_TRAIN;
  }
  return !absl::StartsWith(key, "topology.") &&
         !absl::StartsWith(key, "balance.") &&
         !absl::StartsWith(key, "packing.") &&
         !absl::StartsWith(key, "delivery.") && key != "batch.micro" &&
         key != "order.epochs";
}

std::string DescribeDifference(const v1::Fingerprint& a,
                               absl::string_view a_name,
                               const v1::Fingerprint& b,
                               absl::string_view b_name) {
  std::string text = absl::StrCat("fingerprint ", a.hash(), " of ", a_name,
                                  " differs from ", b.hash(), " of ", b_name);
  if (a.entries().empty() || b.entries().empty()) return text;
  if (const auto found = FirstDifference(Entries(a), Entries(b))) {
    absl::StrAppend(&text, "; first differing key: ", found->key, " is ",
                    found->a, " with ", a_name, " and ", found->b, " with ",
                    b_name);
  }
  return text;
}

absl::Status CheckSameFingerprint(const v1::Fingerprint& a,
                                  absl::string_view a_name,
                                  const v1::Fingerprint& b,
                                  absl::string_view b_name) {
  if (a.hash().empty() || b.hash().empty() || a.hash() == b.hash()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      DescribeDifference(a, a_name, b, b_name));
}

namespace {

// Whether the steps before `next_step` have the same data under both.
bool IsSameData(const v1::Fingerprint& checkpoint,
                const v1::Fingerprint& server, uint64_t next_step) {
  if (checkpoint.hash() == server.hash()) return true;
  if (checkpoint.data_hash().empty()) return false;
  if (DataHashBefore(checkpoint, next_step) ==
      DataHashBefore(server, next_step)) {
    return true;
  }
  // A checkpoint of a hash alone may have been made under the changes at
  // `next_step` and later.
  if (!checkpoint.data_before().empty()) return false;
  if (checkpoint.data_hash() == server.data_hash()) return true;
  return std::any_of(server.data_before().begin(), server.data_before().end(),
                     [&](const v1::Fingerprint::DataBefore& before) {
                       return before.step() >= next_step &&
                              before.data_hash() == checkpoint.data_hash();
                     });
}

}  // namespace

absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           const v1::Fingerprint& server,
                           absl::string_view server_name, v1::Split split,
                           uint64_t next_step) {
  const bool claims =
      !checkpoint.hash().empty() || !checkpoint.data_hash().empty();
  if (!claims || server.hash().empty() ||
      IsSameData(checkpoint, server, next_step)) {
    return absl::OkStatus();
  }
  std::string text =
      absl::StrCat("the checkpoint was made with other data: data fingerprint ",
                   DataHashBefore(checkpoint, next_step), " differs from ",
                   DataHashBefore(server, next_step), " of ", server_name);
  if (checkpoint.entries_size() == 0) {
    absl::StrAppend(&text,
                    "; a hash has no keys: `ballastctl health --config` with "
                    "the checkpoint's configuration names the first one that "
                    "differs");
  }
  if (checkpoint.entries_size() > 0 && server.entries_size() > 0) {
    if (const auto found =
            FirstDifference(DataEntries(checkpoint, split, next_step),
                            DataEntries(server, split, next_step))) {
      absl::StrAppend(&text, "; first differing key: ", found->key, " is ",
                      found->a, " in the checkpoint and ", found->b, " with ",
                      server_name);
      if (const auto step = StepOfKey(found->key)) {
        absl::StrAppend(&text, "; it alters steps from ", *step,
                        " on, and the checkpoint has trained on those before ",
                        next_step, ": let changes begin at step ", next_step,
                        " or later, and leave earlier ones as they were");
      }
    }
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace ballast
