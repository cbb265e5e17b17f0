#include "server/monitor/history_ring.h"

#include <algorithm>

namespace ballast {
namespace {

void Keep(const HistoryPoint& point, size_t most,
          std::deque<HistoryPoint>* points) {
  points->push_back(point);
  if (points->size() > most) points->pop_front();
}

}  // namespace

void HistoryRing::Add(const HistoryPoint& point) {
  Keep(point, kFine, &fine_);
  if (added_++ % kEach == 0) Keep(point, kCoarse, &coarse_);
}

std::vector<HistoryPoint> HistoryRing::Points(absl::Duration range,
                                              size_t most) const {
  if (fine_.empty()) return {};
  const HistoryPoint& last = fine_.back();
  const double first = last.seconds - absl::ToDoubleSeconds(range);
  const std::deque<HistoryPoint>& from =
      range <= kFine * kInterval || added_ <= kFine ? fine_ : coarse_;
  std::vector<HistoryPoint> within;
  for (const HistoryPoint& point : from) {
    if (point.seconds >= first) within.push_back(point);
  }
  if (within.empty() || within.back().seconds < last.seconds) {
    within.push_back(last);
  }
  const size_t stride = (within.size() + most - 1) / most;
  std::vector<HistoryPoint> thinned;
  // From the back, so that the last is always among them.
  for (size_t i = 0; i < within.size(); i += stride) {
    thinned.push_back(within[within.size() - 1 - i]);
  }
  std::reverse(thinned.begin(), thinned.end());
  return thinned;
}

}  // namespace ballast
