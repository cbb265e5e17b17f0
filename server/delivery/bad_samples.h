#ifndef BALLAST_SERVER_DELIVERY_BAD_SAMPLES_H_
#define BALLAST_SERVER_DELIVERY_BAD_SAMPLES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "server/corpus/sample_source.h"

namespace ballast {

// The samples that could not be read while serving, each once, with one line in
// the log. Holds at most `most` of them. Thread-safe.
class BadSamples {
 public:
  struct Entry {
    std::string name;  // "docs:17"
    std::string file;  // where it lies
    uint64_t offset = 0;
    std::string reason;  // when it failed first
    uint64_t count = 0;  // how often a block needed it
  };

  explicit BadSamples(uint32_t most) : most_(most) {}

  // Notes that sample `ordinal` of source number `source` failed. Errors:
  // DATA_LOSS when it would be one more than `most`, naming it and the last
  // that were listed.
  absl::Status Add(uint32_t source, uint64_t ordinal, absl::string_view name,
                   const SampleLocation& location, const absl::Status& reason);

  // In order of source and ordinal.
  std::vector<Entry> List() const;

  uint32_t most() const { return most_; }
  // From now on; those that are listed stay.
  void SetMost(uint32_t most) { most_ = most; }

 private:
  using Key = std::pair<uint32_t, uint64_t>;

  std::atomic<uint32_t> most_;
  mutable Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // The keys of the entries that came last, in that order.
  std::deque<Key> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BAD_SAMPLES_H_
