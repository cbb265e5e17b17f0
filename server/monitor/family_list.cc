#include "server/monitor/family_list.h"

#include <algorithm>

namespace ballast {

void FamilyList::Begin(absl::string_view name, v1::MetricFamily::Type type,
                       absl::string_view help) {
  v1::MetricFamily& family = families_.emplace_back();
  family.set_name(std::string(name));
  family.set_type(type);
  family.set_help(std::string(help));
}

void FamilyList::Add(double number, const Labels& labels) {
  AddMetric(labels)->set_number(number);
}

void FamilyList::Add(const DurationHistogram::Snapshot& histogram,
                     const Labels& labels) {
  v1::MetricFamily::Histogram* added = AddMetric(labels)->mutable_histogram();
  const absl::Span<const double> bounds = DurationHistogram::Bounds();
  added->mutable_bounds()->Add(bounds.begin(), bounds.end());
  added->mutable_counts()->Add(histogram.counts.begin(),
                               histogram.counts.end());
  added->set_sum(histogram.sum);
}

v1::MetricFamily::Metric* FamilyList::AddMetric(const Labels& labels) {
  v1::MetricFamily::Metric* metric = families_.back().add_metrics();
  for (const auto& [name, value] : labels) {
    v1::MetricFamily::Label* label = metric->add_labels();
    label->set_name(std::string(name));
    label->set_value(value);
  }
  return metric;
}

std::vector<v1::MetricFamily> FamilyList::Take() && {
  families_.erase(std::remove_if(families_.begin(), families_.end(),
                                 [](const v1::MetricFamily& family) {
                                   return family.metrics().empty();
                                 }),
                  families_.end());
  return std::move(families_);
}

}  // namespace ballast
