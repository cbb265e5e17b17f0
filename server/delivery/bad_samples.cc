#include "server/delivery/bad_samples.h"

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace ballast {
namespace {

// Number of earlier samples that the error names when there are too many.
constexpr size_t kNamed = 3;

}  // namespace

absl::Status BadSamples::Add(uint32_t source, uint64_t ordinal,
                             absl::string_view name,
                             const SampleLocation& location,
                             const DataFault& fault) {
  {
    MutexLock lock(&mutex_);
    const Key key = {source, ordinal};
    const auto known = samples_.find(key);
    if (known != samples_.end()) {
      ++known->second.count;
      return absl::OkStatus();
    }
    if (samples_.size() >= most_) {
      std::string text = absl::StrCat(
          "sample ", name, ": ", fault.reason(), " (and ", samples_.size(),
          " samples before it were bad, the most that serve.max_bad_samples "
          "allows");
      for (const Key& last : last_) {
        const Sample& listed = samples_[last];
        absl::StrAppend(&text, "; ", listed.name, ": ", listed.reason);
      }
      return absl::DataLossError(absl::StrCat(text, ")"));
    }
    samples_[key] = {std::string(name), location.file, location.offset,
                     fault.reason(), 1};
    last_.push_back(key);
    if (last_.size() > kNamed) last_.pop_front();
  }
  LogWarning("bad sample ", name, " (", location.file, " at byte ",
             location.offset, "): ", fault.reason());
  return absl::OkStatus();
}

std::vector<BadSamples::Sample> BadSamples::List() const {
  MutexLock lock(&mutex_);
  std::vector<Sample> samples;
  for (const auto& [key, sample] : samples_) samples.push_back(sample);
  return samples;
}

}  // namespace ballast
