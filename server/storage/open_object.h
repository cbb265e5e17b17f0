#ifndef BALLAST_SERVER_STORAGE_OPEN_OBJECT_H_
#define BALLAST_SERVER_STORAGE_OPEN_OBJECT_H_

#include <functional>
#include <memory>
#include <string>

#include "server/corpus/file_stamp.h"
#include "server/storage/disk_cache.h"
#include "server/storage/span_memory.h"
#include "server/storage/storage_counters.h"
#include "server/storage/store_reader.h"
#include "server/storage/stored_object.h"

namespace ballast {

// What opened objects share. Nothing is owned but the cache.
struct ObjectParts {
  StoreReader* reader = nullptr;
  SpanMemory* memory = nullptr;
  std::shared_ptr<DiskCache> cache;  // may be null
  StorageCounters* counters = nullptr;
  // Told of the version that the store has now, if it is not the opened one.
  std::function<void(const std::string& url)> on_change;
};

// An object at `path` of the reader's store (StoreUrl::path), called `url` in
// messages, in the version of `stamp`.
//
// A range is read first and the version compared afterwards, so that a span
// never mixes versions and never has another one than `stamp`: stores replace
// objects as a whole.
std::shared_ptr<const StoredObject> MakeOpenObject(ObjectParts parts,
                                                   std::string url,
                                                   std::string path,
                                                   const FileStamp& stamp);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_OPEN_OBJECT_H_
