#include "server/files/store_reader.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "common/threads.h"

namespace ballast {

std::vector<ByteRange> Coalesce(std::vector<ByteRange> wanted) {
  std::sort(wanted.begin(), wanted.end(),
            [](const ByteRange& a, const ByteRange& b) {
              return a.offset < b.offset;
            });
  std::vector<ByteRange> ranges;
  for (const ByteRange& range : wanted) {
    if (range.size == 0) continue;
    if (ranges.empty() || range.offset > ranges.back().end() + kGapBytes) {
      ranges.push_back(range);
      continue;
    }
    ByteRange& last = ranges.back();
    last.size = std::max(last.end(), range.end()) - last.offset;
  }
  return ranges;
}

std::vector<ByteRange> SplitIntoParts(ByteRange range) {
  std::vector<ByteRange> parts;
  for (uint64_t at = 0; at < range.size; at += kPartBytes) {
    parts.push_back({range.offset + at, std::min(kPartBytes, range.size - at)});
  }
  return parts;
}

ByteRange RangeToKeep(ByteRange range, uint64_t object_size) {
  if (range.size >= kSmallBytes) return range;
  const uint64_t begin = range.offset / kBlockBytes * kBlockBytes;
  const uint64_t end = (range.end() + kBlockBytes - 1) / kBlockBytes;
  return {begin, std::min(end * kBlockBytes, object_size) - begin};
}

ByteRange NextWindow(ByteRange last, ByteRange wanted, uint64_t object_size) {
  const bool follows = last.size > 0 && wanted.offset >= last.offset &&
                       wanted.offset <= last.end();
  uint64_t size = follows ? std::min(last.size * 2, kMaxWindow) : kMinWindow;
  size = std::max(size, wanted.size);
  return {wanted.offset, std::min(size, object_size - wanted.offset)};
}

namespace {

// Threads that read the parts of one range.
constexpr size_t kMaxThreads = 8;

absl::Status GetStatus(const absl::Status& status) { return status; }
template <typename T>
absl::Status GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace

template <typename Request>
auto StoreReader::Run(Request request) {
  {
    MutexLock lock(&mutex_);
    while (in_use_ >= connections_) freed_.Wait(&mutex_);
    ++in_use_;
  }
  counters_->requests.Add();
  auto result = request();
  if (!GetStatus(result).ok()) counters_->errors.Add();
  MutexLock lock(&mutex_);
  --in_use_;
  freed_.NotifyOne();
  return result;
}

absl::StatusOr<std::vector<StoreEntry>> StoreReader::List(
    const std::string& folder, bool recursive) {
  return Run([&] { return store_->List(folder, recursive); });
}

absl::StatusOr<FileStamp> StoreReader::Stat(const std::string& path) {
  return Run([&] { return store_->Stat(path); });
}

absl::Status StoreReader::Read(const std::string& path, uint64_t object_size,
                               ByteRange range, char* out) {
  const std::vector<ByteRange> parts = SplitIntoParts(range);
  return RunAll(parts.size(), kMaxThreads, [&](size_t i) -> absl::Status {
    const ByteRange& part = parts[i];
    BALLAST_RETURN_IF_ERROR(Run([&] {
      return store_->Read(path, object_size, part.offset, part.size,
                          out + (part.offset - range.offset));
    }));
    counters_->fetched_bytes.Add(part.size);
    return absl::OkStatus();
  });
}

std::shared_ptr<const CachedRange> CachedRange::Find(const Place& place,
                                                     ReadFrom from,
                                                     FetchAgain fetch_again) {
  std::shared_ptr<CachedRange> range(
      new CachedRange(place, from, std::move(fetch_again)));
  range->entry_ =
      place.cache->Find(place.key, place.owner, place.range.size, from);
  return range->entry_ != nullptr ? range : nullptr;
}

absl::Status CachedRange::ReadAt(uint64_t offset, uint64_t size,
                                 char* out) const {
  if (again_ == nullptr) {
    const absl::Status read =
        entry_->ReadAt(offset - place_.range.offset, size, out);
    if (!absl::IsDataLoss(read)) return read;
    if (from_ == ReadFrom::kMemory) return absl::AbortedError(read.message());
    // The reader that finds the damage on the disk removes the entry.
    place_.cache->RemoveDamaged(place_.key, place_.owner, place_.range.size);
    BALLAST_ASSIGN_OR_RETURN(again_, fetch_again_());
  }
  return again_->ReadAt(offset, size, out);
}

void CachedRange::ReadSoon(ByteRange part) const {
  entry_->ReadSoon(part.offset - place_.range.offset, part.size);
}

namespace {

class OpenObject final : public StoredObject,
                         public std::enable_shared_from_this<OpenObject> {
 public:
  OpenObject(ObjectParts parts, std::string url, std::string path,
             const FileStamp& stamp)
      : parts_(std::move(parts)),
        url_(std::move(url)),
        path_(std::move(path)),
        stamp_(stamp) {}

  const std::string& path() const override { return url_; }
  const FileStamp& stamp() const override { return stamp_; }

  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out,
                      ReadFrom from) const override {
    const ByteRange wanted = {offset, size};
    std::shared_ptr<const Span> window;
    {
      MutexLock lock(&mutex_);
      window = window_;
    }
    if (window == nullptr || !window->range().Covers(wanted)) {
      if (from == ReadFrom::kMemory) return NotInMemory();
      const ByteRange last = window == nullptr ? ByteRange() : window->range();
      const auto next =
          std::make_shared<Span>(NextWindow(last, wanted, stamp_.size));
      BALLAST_RETURN_IF_ERROR(
          parts_.reader->Read(path_, stamp_.size, next->range(), next->data()));
      window = next;
      MutexLock lock(&mutex_);
      window_ = window;
    }
    std::memcpy(out, window->data() + (offset - window->range().offset), size);
    return absl::OkStatus();
  }

  // Only a request that begins after the call may answer it. Callers that come
  // while one is in progress share the next.
  absl::StatusOr<bool> IsUnchanged() const override {
    MutexLock lock(&mutex_);
    const uint64_t wanted = begun_ + 1;
    while (answered_ < wanted) {
      if (answered_ < begun_) {
        answer_came_.Wait(&mutex_);
        continue;
      }
      ++begun_;
      mutex_.Unlock();
      const absl::StatusOr<FileStamp> now = parts_.reader->Stat(path_);
      if (now.ok() && !(*now == stamp_)) parts_.on_change(url_);
      mutex_.Lock();
      answered_ = begun_;
      if (now.ok()) {
        answer_ = *now == stamp_;
      } else {
        answer_ = now.status();
      }
      answer_came_.NotifyAll();
    }
    return answer_;
  }

  absl::StatusOr<std::shared_ptr<const StoredRange>> Fetch(
      ByteRange range, uint64_t owner, ReadFrom from) const override {
    const SpanKey key = GetKey(range);
    if (std::shared_ptr<const Span> held = parts_.memory->Find(key)) {
      parts_.counters->memory_hits.Add();
      return held;
    }
    if (parts_.cache != nullptr) {
      auto cached =
          CachedRange::Find({range, key, owner, parts_.cache.get()}, from,
                            [self = shared_from_this(), key, range, owner] {
                              return self->LoadShared(key, range, owner);
                            });
      if (cached != nullptr) {
        parts_.counters->cache_hits.Add();
        return cached;
      }
    }
    if (from == ReadFrom::kMemory) return NotInMemory();
    return LoadShared(key, range, owner);
  }

  bool IsHere(ByteRange range, uint64_t owner) const override {
    const SpanKey key = GetKey(range);
    return parts_.cache != nullptr ? parts_.cache->Has(key, owner, range.size)
                                   : parts_.memory->Find(key) != nullptr;
  }

  absl::StatusOr<uint64_t> FetchAhead(
      ByteRange range, uint64_t owner,
      const MakeRoom& make_room) const override {
    if (IsHere(range, owner)) return 0;
    if (!make_room(range.size)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(url_, ": no room to fetch ahead"));
    }
    const SpanKey key = GetKey(range);
    uint64_t fetched = 0;
    // Goes through memory, so that a reader that needs the range now waits for
    // the same request.
    const auto span = parts_.memory->Get(key, [&] {
      fetched = range.size;
      return Load(range);
    });
    BALLAST_RETURN_IF_ERROR(span.status());
    if (parts_.cache != nullptr) {
      parts_.cache->Store(key, owner, (*span)->bytes());
    }
    return fetched;
  }

 private:
  absl::Status NotInMemory() const {
    return absl::AbortedError(absl::StrCat(url_, ": not in memory"));
  }

  // The range from the store, with one request for all callers that want it
  // now; also put into memory and the cache.
  absl::StatusOr<SpanMemory::Ptr> LoadShared(const SpanKey& key,
                                             ByteRange range,
                                             uint64_t owner) const {
    return parts_.memory->Get(key, [&]() -> absl::StatusOr<SpanMemory::Ptr> {
      const absl::Time start = absl::Now();
      absl::StatusOr<SpanMemory::Ptr> span = Load(range);
      parts_.counters->stalls.Record(absl::Now() - start);
      if (span.ok() && parts_.cache != nullptr) {
        parts_.cache->Store(key, owner, (*span)->bytes());
      }
      return span;
    });
  }

  // The range, in the version that was opened.
  absl::StatusOr<SpanMemory::Ptr> Load(ByteRange range) const {
    if (range.offset > stamp_.size || range.size > stamp_.size - range.offset) {
      return absl::UnavailableError(
          absl::StrCat(url_, ": ends at byte ", stamp_.size, ", wanted ",
                       range.size, " bytes at ", range.offset));
    }
    const auto span = std::make_shared<Span>(range);
    BALLAST_RETURN_IF_ERROR(
        parts_.reader->Read(path_, stamp_.size, range, span->data()));
    BALLAST_ASSIGN_OR_RETURN(const bool unchanged, IsUnchanged());
    if (!unchanged) {
      return absl::UnavailableError(
          absl::StrCat(url_, ": changed in the store while it was read"));
    }
    return span;
  }

  // The key leaves out the endpoint and the place in memory, so that another
  // server of the node finds the same key.
  SpanKey GetKey(ByteRange range) const {
    const std::string name =
        absl::StrCat(url_, "\n", stamp_.size, "\n", stamp_.mtime_ns, "\n",
                     range.offset, "\n", range.size);
    const XXH128_hash_t hash = XXH3_128bits(name.data(), name.size());
    return {hash.high64, hash.low64};
  }

  const ObjectParts parts_;
  const std::string url_;
  const std::string path_;
  const FileStamp stamp_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<const Span> window_ ABSL_GUARDED_BY(mutex_);
  // Requests of IsUnchanged: how many have begun and ended, and the last
  // answer.
  mutable CondVar answer_came_;
  mutable uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable absl::StatusOr<bool> answer_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<const StoredObject> MakeOpenObject(ObjectParts parts,
                                                   std::string url,
                                                   std::string path,
                                                   const FileStamp& stamp) {
  return std::make_shared<OpenObject>(std::move(parts), std::move(url),
                                      std::move(path), stamp);
}

}  // namespace ballast
