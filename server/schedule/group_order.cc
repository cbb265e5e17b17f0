#include "server/schedule/group_order.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "server/schedule/permutation.h"

namespace ballast {
namespace {

// Of 64 bytes, a line of a processor's cache.
constexpr uint64_t kSlotsOfLine = 4;
constexpr uint64_t kPrefetchedSlots = 8 * kSlotsOfLine;

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// The table that a thread used last of an order.
struct LastTable {
  uint64_t order = 0;  // its id; 0: none
  uint64_t epoch = 0;
  std::shared_ptr<const GroupEpoch> table;
};
constexpr uint64_t kLastTables = 8;
thread_local std::array<LastTable, kLastTables> last_tables;

}  // namespace

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
  const uint64_t windows = windows_.size() - 1;
  if (windows == 0) return;
  shift_ = std::bit_width(std::max<uint64_t>(size / windows, 1)) - 1;
  uint32_t window = 0;
  for (uint64_t at = 0; at < size; at += uint64_t{1} << shift_) {
    while (windows_[window + 1] <= at) ++window;
    stretches_.push_back(window);
  }
  stretches_.push_back(static_cast<uint32_t>(windows - 1));
}

uint64_t GroupEpoch::WindowOf(uint64_t position) const {
  const uint64_t stretch = position >> shift_;
  const auto begin = windows_.begin() + stretches_[stretch] + 1;
  const auto end = windows_.begin() + stretches_[stretch + 1] + 1;
  return std::upper_bound(begin, end, position) - windows_.begin() - 1;
}

uint64_t GroupEpoch::At(uint64_t position) const {
  const uint64_t window = WindowOf(position);
  const uint64_t begin = window * open_groups_;
  const uint64_t end = std::min<uint64_t>(begin + open_groups_, slots_.size());
  // The slots come from far memory while the permutation is computed.
  const uint64_t fetched = std::min(end, begin + kPrefetchedSlots);
  for (uint64_t i = begin; i < fetched; i += kSlotsOfLine) {
    __builtin_prefetch(&slots_[i]);
  }
  const uint64_t first = windows_[window];
  // Windows have keys of their own: those of equal sizes differ.
  const Permutation within(windows_[window + 1] - first,
                           Mix64(key_ + Mix64(window + 1)));
  const uint64_t place = first + within(position - first);
  // The last slot of the window that begins at or before the place. Without
  // branches, which nobody could foretell.
  const Slot* slot = &slots_[begin];
  for (uint64_t left = end - begin; left > 1;) {
    const uint64_t half = left / 2;
    slot += half * static_cast<uint64_t>(slot[half].before <= place);
    left -= half;
  }
  return slot->start + place - slot->before;
}

GroupOrder::GroupOrder(absl::Span<const uint64_t> starts, uint64_t size,
                       uint32_t open_groups, uint64_t key)
    : id_(NextId()),
      starts_(starts),
      size_(size),
      open_groups_(open_groups),
      key_(key) {}

uint64_t GroupOrder::At(uint64_t epoch, uint64_t position) const {
  LastTable& last = last_tables[id_ % kLastTables];
  if (last.order != id_ || last.epoch != epoch) {
    last = {id_, epoch, Epoch(epoch)};
  }
  return last.table->At(position);
}

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
