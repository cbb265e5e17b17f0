#ifndef BALLAST_SERVER_SERVE_MONITOR_WANTED_WORKERS_H_
#define BALLAST_SERVER_SERVE_MONITOR_WANTED_WORKERS_H_

#include <cstdint>

namespace ballast {

// What a server's workers and its ranks do now.
struct WorkersLoad {
  uint32_t busy = 0;             // workers that build
  uint64_t samples_waiting = 0;  // for a worker
  uint64_t streams = 0;          // of ranks
  uint64_t streams_waiting = 0;  // whose rank waits for its next block
};

// The workers that this server's ranks need: the sum over a tier's servers,
// divided by the workers of one, is the servers that the tier needs.
//   - a tenth more than those that are busy, so that a tier whose workers are
//     all busy grows a little, and one that rests shrinks
//   - up to twice as many while samples wait for workers and ranks for blocks,
//     by the part of ranks that wait
//   - nothing more for ranks that wait while no sample does: they wait for
//     storage or for other ranks, which further workers do not change
// At least 1. Pure.
uint32_t WantedWorkers(const WorkersLoad& load);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_MONITOR_WANTED_WORKERS_H_
