#include "server/delivery/bad_samples.h"

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace ballast {
namespace {

// Of the samples before, so many are named when there are too many.
constexpr size_t kNamed = 3;

}  // namespace

absl::Status BadSamples::Add(uint32_t source, uint64_t ordinal,
                             absl::string_view name,
                             const SampleLocation& location,
                             const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    const Key key = {source, ordinal};
    const auto known = entries_.find(key);
    if (known != entries_.end()) {
      ++known->second.count;
      return absl::OkStatus();
    }
    if (entries_.size() >= most_) {
      std::string text = absl::StrCat(
          "sample ", name, ": ", reason.message(), " (and ", entries_.size(),
          " samples before it were bad, the most that serve.max_bad_samples "
          "allows");
      for (const Key& last : last_) {
        const Entry& entry = entries_[last];
        absl::StrAppend(&text, "; ", entry.name, ": ", entry.reason);
      }
      return absl::DataLossError(absl::StrCat(text, ")"));
    }
    entries_[key] = {std::string(name), location.file, location.offset,
                     std::string(reason.message()), 1};
    last_.push_back(key);
    if (last_.size() > kNamed) last_.pop_front();
  }
  LogWarning("bad sample ", name, " (", location.file, " at byte ",
             location.offset, "): ", reason.message());
  return absl::OkStatus();
}

std::vector<BadSamples::Entry> BadSamples::List() const {
  MutexLock lock(&mutex_);
  std::vector<Entry> entries;
  for (const auto& [key, entry] : entries_) entries.push_back(entry);
  return entries;
}

}  // namespace ballast
