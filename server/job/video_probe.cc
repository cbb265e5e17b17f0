#include "server/job/video_probe.h"

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

// A place in a version of a file.
using Place = std::array<uint64_t, 7>;

// nullopt: the file was deleted, so another file may get its inode number.
std::optional<Place> GetPlace(const RawVideo& video) {
  struct stat info = {};
  if (fstat(video.fd->get(), &info) != 0 || info.st_nlink == 0) {
    return std::nullopt;
  }
  const auto time = [](const timespec& at) {
    return static_cast<uint64_t>(at.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(at.tv_nsec);
  };
  return Place{info.st_dev,
               info.st_ino,
               static_cast<uint64_t>(info.st_size),
               time(info.st_mtim),
               time(info.st_ctim),
               video.offset,
               video.size};
}

class Probe {
 public:
  Probe(VideoProbe read, size_t most) : read_(std::move(read)), most_(most) {}

  absl::StatusOr<IndexedVideo> Read(const RawVideo& video) {
    const std::optional<Place> place = GetPlace(video);
    if (place.has_value()) {
      MutexLock lock(&mutex_);
      const auto found = known_.find(*place);
      if (found != known_.end()) return found->second;
    }
    absl::StatusOr<IndexedVideo> facts = ReadAnew(video);
    const bool is_final = facts.ok() || absl::IsInvalidArgument(facts.status());
    if (place.has_value() && is_final) {
      MutexLock lock(&mutex_);
      if (known_.emplace(*place, facts).second) order_.push_back(*place);
      if (order_.size() > most_) {
        known_.erase(order_.front());
        order_.pop_front();
      }
    }
    return facts;
  }

 private:
  absl::StatusOr<IndexedVideo> ReadAnew(const RawVideo& video) {
    absl::StatusOr<IndexedVideo> facts = read_(video);
    if (facts.ok()) return facts;
    // For an index, a file on which the process is silent is bad.
    if (absl::IsDeadlineExceeded(facts.status())) {
      return absl::InvalidArgumentError(facts.status().message());
    }
    // The machine lacks the decoder's libraries: this is no sample's fault.
    if (absl::IsFailedPrecondition(facts.status())) {
      return absl::UnavailableError(facts.status().message());
    }
    return facts.status();
  }

  const VideoProbe read_;
  const size_t most_;
  Mutex mutex_;
  absl::flat_hash_map<Place, absl::StatusOr<IndexedVideo>> known_
      ABSL_GUARDED_BY(mutex_);
  // Oldest first.
  std::deque<Place> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

VideoProbe RememberFacts(VideoProbe read, size_t most) {
  const auto probe = std::make_shared<Probe>(std::move(read), most);
  return [probe](const RawVideo& video) { return probe->Read(video); };
}

VideoProbe MakeVideoProbe(FactsReader read, size_t most) {
  return RememberFacts(
      [read = std::move(read)](
          const RawVideo& video) -> absl::StatusOr<IndexedVideo> {
        const absl::StatusOr<VideoFacts> facts =
            read({video.fd->get(), video.offset, video.size});
        if (!facts.ok()) return facts.status();
        const absl::Status work =
            CheckDecodedPixels(MostPacketsToAFrame(facts->table), *facts);
        if (!work.ok()) return work;
        return GetIndexedVideo(*facts);
      },
      most);
}

}  // namespace ballast
