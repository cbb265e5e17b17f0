#ifndef BALLAST_SERVER_STORAGE_STORE_READER_H_
#define BALLAST_SERVER_STORAGE_STORE_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/storage/object_store.h"
#include "server/storage/span.h"
#include "server/storage/storage_counters.h"

namespace ballast {

// Requests to a store: counted, at most `connections` at the same time, large
// ranges in parts that are read side by side. Thread-safe.
class StoreReader {
 public:
  // `store` and `counters` are not owned.
  StoreReader(ObjectStore* store, uint32_t connections,
              StorageCounters* counters)
      : store_(store), connections_(connections), counters_(counters) {}

  // As ObjectStore.
  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool recursive);
  absl::StatusOr<FileStamp> Stat(const std::string& path);
  absl::Status Read(const std::string& path, uint64_t object_size,
                    ByteRange range, char* out);

 private:
  // Waits for a connection, runs `request` and counts it.
  template <typename Request>
  auto Run(Request request);

  ObjectStore* const store_;
  const uint32_t connections_;
  StorageCounters* const counters_;
  Mutex mutex_;
  CondVar freed_;
  uint32_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORE_READER_H_
