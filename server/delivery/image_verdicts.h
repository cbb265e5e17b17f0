#ifndef BALLAST_SERVER_DELIVERY_IMAGE_VERDICTS_H_
#define BALLAST_SERVER_DELIVERY_IMAGE_VERDICTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace ballast {

// Whether the images of a position could be read and decoded, so that its text
// is not supervised where they could not. Remembers the last kMost positions.
// Thread-safe; threads at different positions seldom share a lock.
class ImageVerdicts {
 public:
  static constexpr size_t kMost = size_t{1} << 16;

  // The last verdict counts.
  void Put(uint64_t position, const absl::Status& verdict);
  // Nothing where none is remembered.
  std::optional<absl::Status> Get(uint64_t position) const;

 private:
  static constexpr size_t kShards = 64;
  struct Shard {
    mutable Mutex mutex;
    std::unordered_map<uint64_t, absl::Status> verdicts ABSL_GUARDED_BY(mutex);
    std::deque<uint64_t> ages ABSL_GUARDED_BY(mutex);  // oldest first
  };
  std::array<Shard, kShards> shards_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_IMAGE_VERDICTS_H_
