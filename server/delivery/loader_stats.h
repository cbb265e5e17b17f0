#ifndef BALLAST_SERVER_DELIVERY_LOADER_STATS_H_
#define BALLAST_SERVER_DELIVERY_LOADER_STATS_H_

#include <cstdint>
#include <optional>

namespace ballast {

// What a loader has done since it was made, and how it stands.
struct LoaderStats {
  uint64_t memory_in_use = 0;  // bytes of blocks that are held or being built
  uint64_t memory_idle = 0;    // and of those that nobody holds
  uint64_t streams = 0;
  uint64_t streams_short_of_memory = 0;  // whose next block waits for a place
  uint64_t streams_awaiting_vision = 0;  // vision_gate.h
  uint64_t blocks_in_work = 0;
  uint64_t blocks_ready = 0;  // built, and not taken by a stream yet
  uint64_t blocks_built = 0;
  uint64_t blocks_failed = 0;  // never completed: bad, or no longer wanted
  uint64_t blocks_reused = 0;  // that a stream found built, or being built
  uint64_t schedules_found = 0;
  uint64_t schedules_computed = 0;
  uint64_t tasks_waiting = 0;
  uint64_t samples_waiting = 0;
  uint32_t workers = 0;
  uint32_t workers_busy = 0;
  // The furthest step that a stream has got a block of since there last were
  // none.
  std::optional<uint64_t> current_step;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_STATS_H_
