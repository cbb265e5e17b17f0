#ifndef BALLAST_SERVER_SCHEDULE_PLACEMENT_FIGURES_H_
#define BALLAST_SERVER_SCHEDULE_PLACEMENT_FIGURES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "proto/config.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Ranks by load, the lightest first; among equal loads the lower rank. A heap
// that knows where each rank is: a change takes O(log ranks) and allocates
// nothing.
//
//   LightRanks light(ranks);
//   light.Set(3, 700);
//   light.Lightest(2)  // {{3}, 1}
class LightRanks {
 public:
  // Begins empty; holds ranks below `ranks`.
  explicit LightRanks(uint32_t ranks);

  // Adds the rank, or gives it another load.
  void Set(uint32_t rank, int64_t load);
  // Does nothing if the rank is not in it.
  void Remove(uint32_t rank);

  // The lightest ranks in order: `most` of them, at most kMaxListed, or all if
  // there are fewer. Takes O(most^2).
  static constexpr size_t kMaxListed = 16;
  struct List {
    std::array<uint32_t, kMaxListed> ranks;
    size_t count = 0;
  };
  List Lightest(size_t most) const;

 private:
  using Entry = std::pair<int64_t, uint32_t>;  // load, rank

  // Moves the entry into its place, above or below the free place `at`.
  void Place(uint32_t at, const Entry& entry);
  void Write(uint32_t at, const Entry& entry) {
    heap_[at] = entry;
    at_[entry.second] = at;
  }

  std::vector<Entry> heap_;
  std::vector<uint32_t> at_;  // place of each rank in the heap
};

// What a schedule costs a trainer, to compare balance.objective and
// balance.placement. Times are sums of costs (balance.cost), in their unit, so
// they predict only as well as the costs do. Plain values.
struct PlacementFigures {
  uint64_t steps = 0;
  uint64_t micro_batches = 0;
  // The micro-batches' mean load of a rank, all modules together: no schedule
  // takes less time.
  double mean_time = 0;
  // Time if ranks wait for each other once in a micro-batch: the largest load
  // of all modules together.
  double time_together = 0;
  // Time if they wait after each module: the sum of the modules' largest loads.
  // This always applies with split placement, since the exchange of embeddings
  // is such a wait.
  double time_by_module = 0;
  // The largest and the mean loads of each module, summed over micro-batches.
  struct Loads {
    double largest = 0;
    double mean = 0;
  };
  std::map<v1::Module, Loads> loads;
  // All image tokens, and those whose embeddings move.
  uint64_t image_tokens = 0;
  uint64_t tokens_within_servers = 0;
  uint64_t tokens_between_servers = 0;

  // The sum of the module's largest loads, divided by the sum of the means. 1:
  // even; 0: no load.
  double spread(v1::Module module) const;
};

// Adds a step. `patches_a_token`: model.merge squared. `schedule` has passed
// CheckColumns.
void AddStep(const v1::StepSchedule& schedule, uint32_t patches_a_token,
             PlacementFigures* figures);

// The images of a job that pass through encoded: model.device_share of the
// images that the index and the model allow to. The rest is left to the
// servers. A hash of the source's name, the sample's number in its index and
// the image's in its sample decides, so an image is sent the same way in all
// epochs and by all servers, wherever the files are. Immutable.
class DeviceShare {
 public:
  // `config` is a loaded one. Without the key all images that may pass through
  // do.
  explicit DeviceShare(const v1::Config& config);

  // Whether crop `crop` of sample `ordinal` of source number `source` passes
  // through encoded. An image that may do so is one crop.
  bool Has(uint32_t source, uint64_t ordinal, uint32_t crop) const;

  // Sets the entries of `encoded_bytes`, one for each crop of the sample, to 0
  // where the crop does not pass through; clears it if none does.
  void Limit(uint32_t source, uint64_t ordinal,
             std::vector<uint32_t>* encoded_bytes) const;

 private:
  double share_ = 1;
  std::vector<uint64_t> sources_;  // hashes of their names
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PLACEMENT_FIGURES_H_
