#ifndef BALLAST_SERVER_MONITOR_FAMILY_LIST_H_
#define BALLAST_SERVER_MONITOR_FAMILY_LIST_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/instruments.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Collects metric families. Thread-compatible.
//
//   FamilyList list;
//   list.Begin("ballast_sent_bytes_total", kCounter, "Bytes of blocks sent.");
//   list.Add(12, {{"way", "stream"}});
class FamilyList {
 public:
  using Labels = std::vector<std::pair<absl::string_view, std::string>>;
  static constexpr auto kCounter = v1::MetricFamily::TYPE_COUNTER;
  static constexpr auto kGauge = v1::MetricFamily::TYPE_GAUGE;
  static constexpr auto kHistogram = v1::MetricFamily::TYPE_HISTOGRAM;

  // Starts the family `name`: metrics added from now on belong to it.
  void Begin(absl::string_view name, v1::MetricFamily::Type type,
             absl::string_view help);
  void Add(double number, const Labels& labels = {});
  void Add(const DurationHistogram::Snapshot& histogram,
           const Labels& labels = {});

  // The families that have metrics, in the order of their Begin.
  std::vector<v1::MetricFamily> Take() &&;

 private:
  v1::MetricFamily::Metric* AddMetric(const Labels& labels);

  std::vector<v1::MetricFamily> families_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MONITOR_FAMILY_LIST_H_
