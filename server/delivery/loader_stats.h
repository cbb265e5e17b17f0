#ifndef BALLAST_SERVER_DELIVERY_LOADER_STATS_H_
#define BALLAST_SERVER_DELIVERY_LOADER_STATS_H_

#include <cstdint>
#include <optional>

namespace ballast {

// Totals of a loader since its start, and its present state.
struct LoaderStats {
  uint64_t memory_in_use = 0;  // bytes of blocks that are held or being built
  uint64_t memory_idle = 0;    // bytes of built blocks that nobody holds
  uint64_t streams = 0;
  uint64_t streams_short_of_memory = 0;    // next block waits for memory
  uint64_t streams_awaiting_encoders = 0;  // held back by EncoderGate
  uint64_t blocks_in_work = 0;
  uint64_t blocks_ready = 0;  // built, and not taken by a stream yet
  uint64_t blocks_built = 0;
  uint64_t blocks_failed = 0;  // a sample failed, or no longer wanted
  uint64_t blocks_reused = 0;  // a stream found it built or being built
  uint64_t schedules_found = 0;
  uint64_t schedules_computed = 0;
  uint64_t tasks_waiting = 0;
  uint64_t samples_waiting = 0;
  uint32_t workers = 0;
  uint32_t workers_busy = 0;
  // The highest step of a block that any stream has taken since the server last
  // had no streams.
  std::optional<uint64_t> current_step;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_STATS_H_
