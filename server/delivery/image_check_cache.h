#ifndef BALLAST_SERVER_DELIVERY_IMAGE_CHECK_CACHE_H_
#define BALLAST_SERVER_DELIVERY_IMAGE_CHECK_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "proto/split.pb.h"
#include "server/corpus/data_fault.h"

namespace ballast {

// The result of reading a sample's images.
struct SampleCheck {
  std::optional<DataFault> fault;  // nullopt if all are good

  friend bool operator==(const SampleCheck&, const SampleCheck&) = default;
};

// Remembers, for the last kMaxCount positions of each split, whether their
// images are good. If not, the sample's text is not supervised. Thread-safe;
// threads at different positions rarely share a lock.
class ImageCheckCache {
 public:
  static constexpr size_t kMaxCount = size_t{1} << 16;

  // Replaces an earlier result.
  void Put(v1::Split split, uint64_t position, SampleCheck check);
  // nullopt if no result is remembered.
  std::optional<SampleCheck> Get(v1::Split split, uint64_t position) const;

 private:
  static constexpr size_t kShards = 64;
  struct Shard {
    mutable Mutex mutex;
    std::unordered_map<uint64_t, SampleCheck> checks ABSL_GUARDED_BY(mutex);
    std::deque<uint64_t> positions ABSL_GUARDED_BY(mutex);  // oldest first
  };
  std::array<std::array<Shard, kShards>, v1::Split_ARRAYSIZE> shards_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_IMAGE_CHECK_CACHE_H_
