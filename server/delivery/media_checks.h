#ifndef BALLAST_SERVER_DELIVERY_MEDIA_CHECKS_H_
#define BALLAST_SERVER_DELIVERY_MEDIA_CHECKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/delivery/sample_reader.h"
#include "server/sample/data_fault.h"

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

// Whether the media of samples are good, as far as the job has encoders for
// them: a sample with a data fault in any has the same fault for every module,
// unless serve.on_bad_sample is `error`. Thread-safe.
class MediaChecks {
 public:
  // Nothing is owned.
  MediaChecks(const v1::Config* config, const SampleReader* reader);

  // Remembers what an encoder of `media` found.
  void Put(const SampleRequest& request, Media media,
           std::optional<DataFault> fault);
  // The fault of the sample's media, except media in `built`. Media that no
  // encoder has read are read and decoded, or compared with their hash, into
  // memory that is dropped. Blocks on the disk. Non-OK statuses are transient
  // faults.
  absl::StatusOr<std::optional<DataFault>> Check(const SampleRequest& request,
                                                 Media built, SampleWork* work);

 private:
  // Results of one kind of encoders' media.
  struct Kind {
    explicit Kind(Media media) : media(media) {}

    const Media media;
    bool is_checked = false;
    ImageCheckCache known;
  };

  // Reads and decodes them.
  absl::StatusOr<std::optional<DataFault>> Read(const SampleRequest& request,
                                                Kind* kind, SampleWork* work);

  const SampleReader* const reader_;
  Kind kinds_[2] = {Kind(Media::kImages), Kind(Media::kRows)};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_MEDIA_CHECKS_H_
