#ifndef BALLAST_TRAINER_SHIM_C_API_HANDLES_H_
#define BALLAST_TRAINER_SHIM_C_API_HANDLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/rank_feed.h"

// What the handles of c_api.h point to.

struct ballast_bytes {
  std::string bytes;
};

struct ballast_communicator {
  std::unique_ptr<ballast::GroupEnd> end;
};

struct ballast_batch {
  // Null unless the last Next gave out a batch.
  const ballast::BatchView* view = nullptr;
  const ballast_shim* shim = nullptr;
};

struct ballast_shim {
  std::unique_ptr<ballast::RankFeed> feed;
  ballast_batch batch;
  ballast::TrainerPlace place;
  // The first step not all of whose batches have been given out.
  uint64_t next_step = 0;
};

namespace ballast {

inline ballast_bytes* NewBytes(std::string bytes) {
  return new ballast_bytes{std::move(bytes)};
}

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_HANDLES_H_
