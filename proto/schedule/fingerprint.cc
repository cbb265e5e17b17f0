#include "proto/schedule/fingerprint.h"

#include <cstdint>
#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

constexpr absl::string_view kSplits = "splits.";

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
std::string HashOf(const std::map<std::string, std::string>& entries,
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
    const v1::Fingerprint& fingerprint, v1::Split split) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : fingerprint.entries()) {
    if (IsDataKey(entry.key(), split)) entries[entry.key()] = entry.value();
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
      HashOf(entries, [](const std::string&) { return true; }));
  fingerprint.set_data_hash(HashOf(entries, [split](const std::string& key) {
    return IsDataKey(key, split);
  }));
  return fingerprint;
}

std::string SplitPrefix(v1::Split split) {
  if (split == v1::SPLIT_TRAIN) return "";
  return absl::StrCat(kSplits, SplitName(split), ".");
}

bool IsDataKey(absl::string_view key, v1::Split split) {
  if (absl::StartsWith(key, kSplits)) {
    return split != v1::SPLIT_TRAIN &&
           absl::StartsWith(key, SplitPrefix(split));
  }
  if (split != v1::SPLIT_TRAIN &&
      (absl::StartsWith(key, "sources.") || absl::StartsWith(key, "index."))) {
    return false;
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

absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           const v1::Fingerprint& server,
                           absl::string_view server_name, v1::Split split) {
  const bool claims =
      !checkpoint.hash().empty() || !checkpoint.data_hash().empty();
  if (!claims || server.hash().empty() || checkpoint.hash() == server.hash() ||
      (!checkpoint.data_hash().empty() &&
       checkpoint.data_hash() == server.data_hash())) {
    return absl::OkStatus();
  }
  std::string text =
      absl::StrCat("the checkpoint was made with other data: data fingerprint ",
                   checkpoint.data_hash(), " differs from ", server.data_hash(),
                   " of ", server_name);
  if (checkpoint.entries_size() > 0 && server.entries_size() > 0) {
    if (const auto found = FirstDifference(DataEntries(checkpoint, split),
                                           DataEntries(server, split))) {
      absl::StrAppend(&text, "; first differing key: ", found->key, " is ",
                      found->a, " in the checkpoint and ", found->b, " with ",
                      server_name);
    }
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace ballast
