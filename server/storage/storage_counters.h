#ifndef BALLAST_SERVER_STORAGE_STORAGE_COUNTERS_H_
#define BALLAST_SERVER_STORAGE_STORAGE_COUNTERS_H_

#include "common/instruments.h"

namespace ballast {

// What a process read of its stores, see GetStatusResponse.Storage.
struct StorageCounters {
  Counter requests;
  Counter fetched_bytes;
  Counter memory_hits;
  Counter cache_hits;
  DurationHistogram stalls;
  Counter errors;
  Counter cache_damaged;
  Counter cache_evicted;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_STORAGE_COUNTERS_H_
