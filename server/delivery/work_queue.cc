#include "server/delivery/work_queue.h"

#include <algorithm>
#include <utility>

namespace ballast {
namespace {

constexpr uint64_t kFarthest = uint64_t{1} << 40;

}  // namespace

void WorkQueue::AddTask(std::function<void()> task) {
  tasks_.push_back(std::move(task));
}

void WorkQueue::AddWatchTask(std::function<void()> task) {
  watch_tasks_.push_back(std::move(task));
}

void WorkQueue::AddItems(uint64_t distance, std::shared_ptr<WorkItems> items) {
  items_ += items->items();
  const uint64_t turn = added_++ + kPatience * std::min(distance, kFarthest);
  by_turn_[turn].push_back({std::move(items), 0});
}

bool WorkQueue::RemoveIfUntouched(const WorkItems* items) {
  for (auto turn = by_turn_.begin(); turn != by_turn_.end(); ++turn) {
    auto& pending = turn->second;
    const auto found = std::find_if(
        pending.begin(), pending.end(),
        [items](const Pending& p) { return p.items.get() == items; });
    if (found == pending.end()) continue;
    if (found->next_item != 0) return false;
    items_ -= items->items();
    pending.erase(found);
    if (pending.empty()) by_turn_.erase(turn);
    return true;
  }
  return false;
}

WorkQueue::Work WorkQueue::Take(std::deque<std::function<void()>>* tasks) {
  Work work{std::move(tasks->front()), nullptr, 0};
  tasks->pop_front();
  return work;
}

std::optional<WorkQueue::Work> WorkQueue::Pop() {
  if (!tasks_.empty()) return Take(&tasks_);
  if (!watch_tasks_.empty() &&
      (by_turn_.empty() || since_watch_task_ >= kItemsPerWatchTask)) {
    since_watch_task_ = 0;
    return Take(&watch_tasks_);
  }
  if (by_turn_.empty()) return std::nullopt;
  const auto nearest = by_turn_.begin();
  Pending& front = nearest->second.front();
  Work work{nullptr, front.items, front.next_item++};
  --items_;
  ++since_watch_task_;
  if (front.next_item == front.items->items()) {
    nearest->second.pop_front();
    if (nearest->second.empty()) by_turn_.erase(nearest);
  }
  return work;
}

}  // namespace ballast
