#include "server/schedule/group_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/schedule/permutation.h"

namespace ballast {

GroupEpoch::GroupEpoch(absl::Span<const uint64_t> starts, uint64_t size,
                       uint32_t open_groups, uint64_t key)
    : open_groups_(open_groups), key_(key) {
  const uint64_t groups = starts.size();
  slots_.reserve(groups);
  uint64_t before = 0;
  if (groups > 0) {
    const Permutation order(groups, Mix64(key));
    for (uint64_t slot = 0; slot < groups; ++slot) {
      const uint64_t group = order(slot);
      if (slot % open_groups_ == 0) windows_.push_back(before);
      slots_.push_back({before, starts[group]});
      before += (group + 1 < groups ? starts[group + 1] : size) - starts[group];
    }
  }
  windows_.push_back(before);
}

uint64_t GroupEpoch::At(uint64_t position) const {
  const uint64_t window =
      std::upper_bound(windows_.begin(), windows_.end() - 1, position) -
      windows_.begin() - 1;
  const uint64_t first = windows_[window];
  // Windows have keys of their own: those of equal sizes differ.
  const Permutation within(windows_[window + 1] - first,
                           Mix64(key_ + Mix64(window + 1)));
  const uint64_t place = first + within(position - first);
  const uint64_t begin = window * open_groups_;
  const uint64_t end = std::min<uint64_t>(begin + open_groups_, slots_.size());
  // The last slot of the window that begins at or before the place.
  const auto after = std::upper_bound(
      slots_.begin() + begin, slots_.begin() + end, place,
      [](uint64_t wanted, const Slot& slot) { return wanted < slot.before; });
  const Slot& slot = *std::prev(after);
  return slot.start + place - slot.before;
}

GroupOrder::GroupOrder(absl::Span<const uint64_t> starts, uint64_t size,
                       uint32_t open_groups, uint64_t key)
    : starts_(starts), size_(size), open_groups_(open_groups), key_(key) {}

std::shared_ptr<const GroupEpoch> GroupOrder::Epoch(uint64_t epoch) const {
  {
    MutexLock lock(&mutex_);
    for (Kept& kept : kept_) {
      if (kept.order != nullptr && kept.epoch == epoch) return kept.order;
    }
  }
  auto order = std::make_shared<const GroupEpoch>(starts_, size_, open_groups_,
                                                  Mix64(key_ + Mix64(epoch)));
  MutexLock lock(&mutex_);
  kept_[1] = std::exchange(kept_[0], {epoch, order});
  return order;
}

}  // namespace ballast
