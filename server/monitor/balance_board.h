#ifndef BALLAST_SERVER_MONITOR_BALANCE_BOARD_H_
#define BALLAST_SERVER_MONITOR_BALANCE_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/balance.pb.h"
#include "proto/block/block_plan.h"
#include "server/delivery/loader.h"
#include "server/schedule/step_balance.h"

namespace ballast {

// The balance of any step, computed by the loader's workers, and of those that
// training has reached: each of these once, as the first stream gets its first
// block. Thread-safe. Workers hold it while they compute for it, so it may end
// before the loader does.
class BalanceBoard : public std::enable_shared_from_this<BalanceBoard> {
 public:
  using Shared = std::shared_ptr<const v1::StepBalance>;
  using Answer = std::function<void(absl::StatusOr<Shared>)>;

  // Steps that History holds, without their columns by rank.
  static constexpr size_t kHistory = 256;
  // Steps that are kept for those who ask again, with their columns by rank, as
  // long as these have no more entries in all: some 12 MiB.
  static constexpr size_t kKept = 64;
  static constexpr uint64_t kKeptRanks = uint64_t{1} << 18;

  // Becomes what the loader tells its steps (Loader::WatchSteps). `loader` is
  // not owned and outlives every call of Get.
  static std::shared_ptr<BalanceBoard> Create(Loader* loader,
                                              ServersOfRanks servers,
                                              const BlockGeometry& geometry);

  // What is kept of `step`; null where nothing is.
  Shared Find(uint64_t step) const;

  // Has a worker find out the balance of `step`, with columns by rank, and hand
  // it to `answer`. Errors: those of Loader::PeekSchedule.
  void Get(uint64_t step, Answer answer);

  // The step that training is at, and its balance; null before the first.
  Shared Current() const;
  // Of the last steps that training has reached, in ascending order.
  std::vector<Shared> History() const;

  // Sums over the steps that training has reached since the server began.
  struct Sums {
    uint64_t samples = 0;
    uint64_t bytes = 0;
    v1::Moved within_servers;
    v1::Moved between_servers;
  };
  std::map<v1::Module, Sums> sums() const;

  // `on_step` is called by a worker, with no lock held, whenever Current has
  // changed. To be called at most once.
  void SetListener(std::function<void(uint64_t step)> on_step);

 private:
  BalanceBoard(Loader* loader, ServersOfRanks servers,
               const BlockGeometry& geometry)
      : loader_(loader), servers_(std::move(servers)), geometry_(geometry) {}

  void OnStep(uint64_t step);
  void Reach(const Shared& balance);
  void Keep(const Shared& balance);

  Loader* const loader_;
  const ServersOfRanks servers_;
  const BlockGeometry geometry_;
  mutable Mutex mutex_;
  std::function<void(uint64_t)> listener_ ABSL_GUARDED_BY(mutex_);
  std::list<Shared> kept_ ABSL_GUARDED_BY(mutex_);  // the newest first
  uint64_t kept_ranks_ ABSL_GUARDED_BY(mutex_) = 0;
  Shared current_ ABSL_GUARDED_BY(mutex_);
  std::deque<Shared> history_ ABSL_GUARDED_BY(mutex_);
  std::map<v1::Module, Sums> sums_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MONITOR_BALANCE_BOARD_H_
