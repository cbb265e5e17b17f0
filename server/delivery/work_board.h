#ifndef BALLAST_SERVER_DELIVERY_WORK_BOARD_H_
#define BALLAST_SERVER_DELIVERY_WORK_BOARD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"

namespace ballast {

// One sample that a worker has in hand.
struct WorkInHand {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint64_t position = 0;
  uint32_t source = 0;  // number in the configuration
  uint64_t ordinal = 0;
  // "read", "decode", "tokenise", …: a literal.
  const char* stage = "";
  absl::Time since;  // when the stage began
  // Of the stage: different from every other's.
  uint64_t id = 0;
};

// What all workers have in hand now. Thread-safe; threads seldom share a lock,
// and no two locks a line of cache.
class WorkBoard {
 public:
  explicit WorkBoard(Clock* clock) : clock_(clock) {}  // outlives this

  // Stands on the board until it is destroyed. For one thread.
  class Entry {
   public:
    // `board` may be null; then this is nothing. `work.stage`, `since` and `id`
    // are filled in by Stage.
    Entry(WorkBoard* board, const WorkInHand& work);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // The sample goes into its next stage.
    void Stage(const char* stage);

   private:
    friend class WorkBoard;
    WorkBoard* const board_;
    const size_t shard_;
    std::list<WorkInHand>::iterator place_;
  };

  std::vector<WorkInHand> List() const;

 private:
  static constexpr size_t kShards = 64;
  struct alignas(64) Shard {
    mutable Mutex mutex;
    std::list<WorkInHand> work ABSL_GUARDED_BY(mutex);
    uint64_t next_id ABSL_GUARDED_BY(mutex) = 0;
  };

  Clock* const clock_;
  std::array<Shard, kShards> shards_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORK_BOARD_H_
