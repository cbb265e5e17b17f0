#include "server/serve/monitor/state_history.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/string_view.h"

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

namespace {

// The number of a column. Does not compile for a name that no column has.
constexpr size_t Column(absl::string_view name) {
  size_t i = 0;
  while (HistoryPoint::kColumns.at(i) != name) ++i;
  return i;
}

// Metrics that a column sums: the metrics of a family that have the label. An
// empty name means any label.
struct Part {
  size_t column;
  const char* family;
  const char* label;
  const char* value;
};

constexpr Part kParts[] = {
    {Column("step"), "ballast_step", "", ""},
    {Column("images"), "ballast_images_total", "use", "vision"},
    {Column("images"), "ballast_images_total", "use", "encoded"},
    {Column("tokens"), "ballast_tokens_total", "", ""},
    {Column("sent_bytes"), "ballast_sent_bytes_total", "", ""},
    {Column("wait_seconds"), "ballast_rank_seconds", "phase", "wait"},
    {Column("train_seconds"), "ballast_rank_seconds", "phase", "train"},
    {Column("memory_bytes"), "ballast_memory_in_use_bytes", "", ""},
    {Column("workers_busy"), "ballast_workers_busy", "", ""},
    {Column("spread_vision"), "ballast_balance_spread_ratio", "module",
     "vision"},
    {Column("spread_language"), "ballast_balance_spread_ratio", "module",
     "language"},
    {Column("bad_samples"), "ballast_bad_samples", "", ""},
    {Column("clients"), "ballast_clients", "", ""},
};

bool Has(const v1::MetricFamily::Metric& metric, absl::string_view label,
         absl::string_view value) {
  for (const v1::MetricFamily::Label& one : metric.labels()) {
    if (one.name() == label) return one.value() == value;
  }
  return false;
}

bool Belongs(const v1::MetricFamily::Metric& metric, const Part& part) {
  // The spread as read is not the spread that is trained.
  if (Has(metric, "when", "before")) return false;
  return *part.label == '\0' || Has(metric, part.label, part.value);
}

}  // namespace

HistoryPoint GetPoint(const std::vector<v1::MetricFamily>& families,
                      double seconds) {
  HistoryPoint point;
  point.seconds = seconds;
  point.values.fill(std::numeric_limits<double>::quiet_NaN());
  for (const v1::MetricFamily& family : families) {
    for (const Part& part : kParts) {
      if (family.name() != part.family) continue;
      for (const v1::MetricFamily::Metric& metric : family.metrics()) {
        if (!Belongs(metric, part)) continue;
        double& value = point.values[part.column];
        if (value != value) value = 0;
        value +=
            metric.has_histogram() ? metric.histogram().sum() : metric.number();
      }
    }
  }
  return point;
}

absl::StatusOr<std::unique_ptr<StateHistory>> StateHistory::Start(
    Metrics metrics, absl::Time start, Clock* clock) {
  std::unique_ptr<StateHistory> history(
      new StateHistory(std::move(metrics), start, clock));
  history->Look();
  absl::StatusOr<std::unique_ptr<Ticker>> ticker = Ticker::Start(
      "keep the figures of the page", [] { return HistoryRing::kInterval; },
      [look = history.get()] { look->Look(); }, clock);
  if (!ticker.ok()) return ticker.status();
  history->ticker_ = *std::move(ticker);
  return history;
}

StateHistory::StateHistory(Metrics metrics, absl::Time start, Clock* clock)
    : metrics_(std::move(metrics)),
      start_seconds_(absl::ToDoubleSeconds(start - absl::UnixEpoch())),
      clock_(clock),
      start_(clock->Now()) {}

void StateHistory::Look() {
  const HistoryPoint point =
      GetPoint(metrics_(),
               start_seconds_ + absl::ToDoubleSeconds(clock_->Now() - start_));
  MutexLock lock(&mutex_);
  ring_.Add(point);
}

std::vector<HistoryPoint> StateHistory::Points(absl::Duration range,
                                               size_t most) const {
  MutexLock lock(&mutex_);
  return ring_.Points(range, most);
}

v1::GetHistoryResponse MakeHistoryResponse(const std::string& name,
                                           const StateHistory& history,
                                           absl::Duration range, size_t most) {
  v1::GetHistoryResponse response;
  response.set_server(name);
  response.set_start(history.start_seconds());
  for (const char* column : HistoryPoint::kColumns) {
    response.add_columns()->set_name(column);
  }
  for (const HistoryPoint& point : history.Points(range, most)) {
    response.add_seconds(point.seconds);
    for (size_t i = 0; i < point.values.size(); ++i) {
      response.mutable_columns(static_cast<int>(i))
          ->add_values(point.values[i]);
    }
  }
  return response;
}

}  // namespace ballast
