#ifndef BALLAST_SERVER_SERVE_MONITOR_BALANCE_BOARD_H_
#define BALLAST_SERVER_SERVE_MONITOR_BALANCE_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/balance.pb.h"
#include "proto/block/block_plan.h"
#include "proto/metrics_service.pb.h"
#include "server/delivery/loader.h"
#include "server/sample/source_index.h"
#include "server/schedule/step_plan.h"

namespace ballast {

// The counts of a source's index for GetStatus. Pure.
v1::GetStatusResponse::EncodedImages GetEncodedImages(
    const std::string& source, const ImageMarkCounts& counts);

// The balance of any step, computed by the loader's workers, and a history of
// the steps that training has reached: a step is reached once, when the first
// stream gets its first block. Thread-safe. Workers hold a reference while they
// compute, so it may be dropped before the loader.
class BalanceBoard : public std::enable_shared_from_this<BalanceBoard> {
 public:
  using Shared = std::shared_ptr<const v1::StepBalance>;
  using Answer = std::function<void(absl::StatusOr<Shared>)>;

  // Limit of steps in History, without their columns by rank.
  static constexpr size_t kHistory = 256;
  // Limit of steps kept for repeated queries, with their columns by rank, and
  // of all entries of these columns: some 12 MiB. Only steps that training has
  // reached are kept, since a change of the job may alter the others.
  static constexpr size_t kKept = 64;
  static constexpr uint64_t kKeptRanks = uint64_t{1} << 18;

  // Registers with Loader::WatchSteps. `loader` is not owned and must outlive
  // every call of Get. `pack_room`: as PackRoom.
  static std::shared_ptr<BalanceBoard> Create(Loader* loader,
                                              ServersOfRanks servers,
                                              const BlockGeometry& geometry,
                                              uint64_t pack_room = 0);

  // The kept balance of `step`; null if it was not kept.
  Shared Find(uint64_t step) const;

  // Makes a worker compute the balance of `step`, with columns by rank, and
  // pass it to `answer`. Errors: as Loader::PeekSchedule.
  void Get(uint64_t step, Answer answer);

  // The balance of the step that training has reached; null before the first.
  Shared Current() const;
  // The last steps that training has reached, in ascending order.
  std::vector<Shared> History() const;

  // Sums over the steps that training has reached since the server started.
  struct Sums {
    uint64_t samples = 0;
    uint64_t bytes = 0;
    v1::Moved within_servers;
    v1::Moved between_servers;
  };
  std::map<v1::Module, Sums> sums() const;

  // A worker calls `on_step`, with no lock held, whenever Current has changed.
  // Call at most once.
  void SetListener(std::function<void(uint64_t step)> on_step);

 private:
  BalanceBoard(Loader* loader, ServersOfRanks servers,
               const BlockGeometry& geometry, uint64_t pack_room)
      : loader_(loader),
        servers_(std::move(servers)),
        geometry_(geometry),
        pack_room_(pack_room) {}

  // Computes the balance of the schedule that it is called with, for `answer`.
  Loader::ScheduleAnswer Measure(Answer answer);
  void OnStep(uint64_t step);
  void Reach(const Shared& balance);
  void Keep(const Shared& balance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Loader* const loader_;
  const ServersOfRanks servers_;
  const BlockGeometry geometry_;
  const uint64_t pack_room_;  // of a micro-batch
  mutable Mutex mutex_;
  std::function<void(uint64_t)> listener_ ABSL_GUARDED_BY(mutex_);
  std::list<Shared> kept_ ABSL_GUARDED_BY(mutex_);  // the newest first
  uint64_t kept_ranks_ ABSL_GUARDED_BY(mutex_) = 0;
  Shared current_ ABSL_GUARDED_BY(mutex_);
  std::deque<Shared> history_ ABSL_GUARDED_BY(mutex_);
  std::map<v1::Module, Sums> sums_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_MONITOR_BALANCE_BOARD_H_
