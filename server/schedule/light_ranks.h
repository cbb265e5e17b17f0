#ifndef BALLAST_SERVER_SCHEDULE_LIGHT_RANKS_H_
#define BALLAST_SERVER_SCHEDULE_LIGHT_RANKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ballast {

// Ranks by load, the lightest first; of equal loads the lower rank. A heap that
// knows where each rank is: a change takes O(log ranks) and allocates nothing.
//
//   LightRanks light(ranks);
//   light.Set(3, 700);
//   light.Lightest(2)  // {{3}, 1}
class LightRanks {
 public:
  // None of the `ranks` is in it.
  explicit LightRanks(uint32_t ranks);

  // Adds the rank, or gives it another load.
  void Set(uint32_t rank, int64_t load);
  // Does nothing if the rank is not in it.
  void Remove(uint32_t rank);

  // The lightest ranks in order: `most` of them, at most kMostListed, or all if
  // there are fewer. Takes O(most^2).
  static constexpr size_t kMostListed = 16;
  struct List {
    std::array<uint32_t, kMostListed> ranks;
    size_t count = 0;
  };
  List Lightest(size_t most) const;

 private:
  using Entry = std::pair<int64_t, uint32_t>;  // load, rank

  // Puts the entry where it belongs, above or below the free place `at`.
  void Place(uint32_t at, const Entry& entry);
  void Write(uint32_t at, const Entry& entry) {
    heap_[at] = entry;
    at_[entry.second] = at;
  }

  std::vector<Entry> heap_;
  std::vector<uint32_t> at_;  // of each rank, in the heap
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_LIGHT_RANKS_H_
