#include "server/delivery/work_queue.h"

#include <algorithm>
#include <utility>

namespace ballast {
namespace {

constexpr uint64_t kFarthest = uint64_t{1} << 40;

}  // namespace

void WorkQueue::AddErrand(std::function<void()> errand) {
  errands_.push_back(std::move(errand));
}

void WorkQueue::AddRun(uint64_t distance, std::shared_ptr<ItemRun> run) {
  items_ += run->items();
  const uint64_t turn = added_++ + kPatience * std::min(distance, kFarthest);
  runs_[turn].push_back({std::move(run), 0});
}

bool WorkQueue::RemoveIfUntouched(const ItemRun* run) {
  for (auto entry = runs_.begin(); entry != runs_.end(); ++entry) {
    auto& pending = entry->second;
    const auto found =
        std::find_if(pending.begin(), pending.end(),
                     [run](const Pending& p) { return p.run.get() == run; });
    if (found == pending.end()) continue;
    if (found->next_item != 0) return false;
    items_ -= run->items();
    pending.erase(found);
    if (pending.empty()) runs_.erase(entry);
    return true;
  }
  return false;
}

std::optional<WorkQueue::Work> WorkQueue::Pop() {
  if (!errands_.empty()) {
    Work work{std::move(errands_.front()), nullptr, 0};
    errands_.pop_front();
    return work;
  }
  if (runs_.empty()) return std::nullopt;
  const auto nearest = runs_.begin();
  Pending& front = nearest->second.front();
  Work work{nullptr, front.run, front.next_item++};
  --items_;
  if (front.next_item == front.run->items()) {
    nearest->second.pop_front();
    if (nearest->second.empty()) runs_.erase(nearest);
  }
  return work;
}

}  // namespace ballast
