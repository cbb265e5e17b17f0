#include "server/delivery/bad_samples.h"

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace ballast {

absl::Status BadSamples::Add(uint32_t source, uint64_t ordinal,
                             absl::string_view name,
                             const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    const auto known = entries_.find({source, ordinal});
    if (known != entries_.end()) {
      ++known->second.count;
      return absl::OkStatus();
    }
    if (entries_.size() >= most_) {
      return absl::DataLossError(absl::StrCat(
          "sample ", name, ": ", reason.message(), " (and ", entries_.size(),
          " samples before it were bad, the most that serve.max_bad_samples "
          "allows)"));
    }
    entries_[{source, ordinal}] = {std::string(name),
                                   std::string(reason.message()), 1};
  }
  LogWarning("bad sample ", name, ": ", reason.message());
  return absl::OkStatus();
}

std::vector<BadSamples::Entry> BadSamples::List() const {
  MutexLock lock(&mutex_);
  std::vector<Entry> entries;
  for (const auto& [key, entry] : entries_) entries.push_back(entry);
  return entries;
}

}  // namespace ballast
