#include "server/settings/key_report.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ballast {
namespace {

// The section that encloses a key: "a[0].b" -> "a[0]" -> "a" -> "".
absl::string_view ParentKey(absl::string_view key) {
  const size_t cut = key.find_last_of(".[");
  return cut == absl::string_view::npos ? "" : key.substr(0, cut);
}

// Number of insertions, deletions and replacements that turn `a` into `b`.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

void KeyReport::AddKey(absl::string_view key, KeyLocation location) {
  keys_.try_emplace(std::string(key), location);
}

bool KeyReport::Has(absl::string_view key) const { return keys_.contains(key); }

KeyLocation KeyReport::Locate(absl::string_view key) const {
  while (!key.empty()) {
    const auto found = keys_.find(key);
    if (found != keys_.end()) return found->second;
    key = ParentKey(key);
  }
  return KeyLocation();
}

void KeyReport::AddFault(absl::string_view key, absl::string_view message) {
  AddFaultAt(Locate(key), key, message);
}

void KeyReport::AddFaultAt(KeyLocation location, absl::string_view key,
                           absl::string_view message) {
  faulty_.insert(std::string(key));
  for (absl::string_view around = key; !around.empty();) {
    around = ParentKey(around);
    around_faults_.insert(std::string(around));
  }
  faults_.push_back({location, std::string(key), std::string(message)});
}

void KeyReport::AddMissing(absl::string_view key, absl::string_view wanted) {
  AddFault(key, absl::StrCat("missing; wanted ", wanted));
}

bool KeyReport::IsFaulty(absl::string_view key) const {
  while (!key.empty() && !faulty_.contains(key)) key = ParentKey(key);
  return faulty_.contains(key);
}

bool KeyReport::HasFaultWithin(absl::string_view key) const {
  return IsFaulty(key) || around_faults_.contains(key);
}

absl::Status KeyReport::ToStatus(absl::string_view file) const {
  if (faults_.empty()) return absl::OkStatus();
  std::vector<const Fault*> sorted;
  for (const Fault& fault : faults_) sorted.push_back(&fault);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Fault* a, const Fault* b) {
                     return std::pair(a->location.line, a->location.column) <
                            std::pair(b->location.line, b->location.column);
                   });
  std::vector<std::string> lines;
  for (const Fault* fault : sorted) {
    lines.push_back(absl::StrCat(file, ":", fault->location.line, ": ",
                                 fault->key, fault->key.empty() ? "" : ": ",
                                 fault->message));
  }
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

std::string ChildKey(absl::string_view parent, absl::string_view name) {
  return absl::StrCat(parent, parent.empty() ? "" : ".", name);
}

std::string ItemKey(absl::string_view parent, int index) {
  return absl::StrCat(parent, "[", index, "]");
}

std::string Shown(absl::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.empty()) return "\"\"";
  if (text.size() <= kLongest) return absl::Utf8SafeCHexEscape(text);
  return absl::StrCat(absl::Utf8SafeCHexEscape(text.substr(0, kLongest)),
                      "...");
}

std::string SuggestName(absl::string_view name,
                        const std::vector<std::string>& known) {
  const std::string* nearest = nullptr;
  // Accepts up to a third of wrong letters; beyond that a guess is arbitrary.
  size_t best = name.size() / 3 + 1;
  for (const std::string& candidate : known) {
    if (name.size() > 2 * candidate.size() + 2) continue;
    const size_t distance = EditDistance(name, candidate);
    if (distance < best || (nearest == nullptr && distance == best)) {
      best = distance;
      nearest = &candidate;
    }
  }
  if (nearest != nullptr) return absl::StrCat("did you mean ", *nearest, "?");
  return absl::StrCat("wanted one of ", absl::StrJoin(known, ", "));
}

}  // namespace ballast
