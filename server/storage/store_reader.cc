#include "server/storage/store_reader.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/status_macros.h"
#include "server/storage/range_plan.h"

namespace ballast {
namespace {

// Threads that read the parts of one range.
constexpr size_t kMostThreads = 8;

absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
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
  if (!StatusOf(result).ok()) counters_->errors.Add();
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
  std::atomic<size_t> next{0};
  std::vector<absl::Status> results(parts.size());
  const auto work = [&] {
    while (true) {
      const size_t i = next++;
      if (i >= parts.size()) return;
      const ByteRange& part = parts[i];
      results[i] = Run([&] {
        return store_->Read(path, object_size, part.offset, part.size,
                            out + (part.offset - range.offset));
      });
      if (results[i].ok()) {
        counters_->fetched_bytes.Add(part.size);
      } else {
        next = parts.size();
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(parts.size(), kMostThreads); ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) BALLAST_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace ballast
