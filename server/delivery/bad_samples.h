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
#include "server/corpus/data_fault.h"
#include "server/corpus/sample_source.h"

namespace ballast {

// The samples in which serving found a data fault: each is listed and logged
// once. Holds at most `most` of them. Thread-safe.
class BadSamples {
 public:
  struct Sample {
    std::string name;  // "docs:17"
    std::string file;
    uint64_t offset = 0;  // in the file, bytes
    std::string reason;   // of the first failure
    uint64_t count = 0;   // blocks that needed it
  };

  explicit BadSamples(uint32_t most) : most_(most) {}

  // Lists sample `ordinal` of source number `source`. Errors: DATA_LOSS if
  // `most` are listed already, naming this sample and the last ones listed.
  absl::Status Add(uint32_t source, uint64_t ordinal, absl::string_view name,
                   const SampleLocation& location, const DataFault& fault);

  // Ordered by source, then by ordinal.
  std::vector<Sample> List() const;

  uint32_t most() const { return most_; }
  // Changes `most` from now on; listed samples stay.
  void SetMost(uint32_t most) { most_ = most; }

 private:
  using Key = std::pair<uint32_t, uint64_t>;

  std::atomic<uint32_t> most_;
  mutable Mutex mutex_;
  std::map<Key, Sample> samples_ ABSL_GUARDED_BY(mutex_);
  // Keys of the samples listed last, oldest first.
  std::deque<Key> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BAD_SAMPLES_H_
