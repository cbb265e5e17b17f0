#include "server/http/prometheus_text.h"

#include <cstdint>
#include <limits>
#include <utility>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace ballast {
namespace {

prometheus::MetricType GetType(v1::MetricFamily::Type type) {
  switch (type) {
    case v1::MetricFamily::TYPE_COUNTER:
      return prometheus::MetricType::Counter;
    case v1::MetricFamily::TYPE_GAUGE:
      return prometheus::MetricType::Gauge;
    case v1::MetricFamily::TYPE_HISTOGRAM:
      return prometheus::MetricType::Histogram;
    default:
      return prometheus::MetricType::Untyped;
  }
}

// Prometheus buckets are cumulative, and the last has no bound.
prometheus::ClientMetric::Histogram GetHistogram(
    const v1::MetricFamily::Histogram& histogram) {
  prometheus::ClientMetric::Histogram converted;
  for (int i = 0; i < histogram.counts_size(); ++i) {
    converted.sample_count += histogram.counts(i);
    converted.bucket.push_back({converted.sample_count,
                                i < histogram.bounds_size()
                                    ? histogram.bounds(i)
                                    : std::numeric_limits<double>::infinity()});
  }
  converted.sample_sum = histogram.sum();
  return converted;
}

prometheus::ClientMetric GetMetric(const v1::MetricFamily::Metric& metric) {
  prometheus::ClientMetric converted;
  for (const v1::MetricFamily::Label& label : metric.labels()) {
    converted.label.push_back({label.name(), label.value()});
  }
  converted.counter.value = metric.number();
  converted.gauge.value = metric.number();
  converted.untyped.value = metric.number();
  if (metric.has_histogram()) {
    converted.histogram = GetHistogram(metric.histogram());
  }
  return converted;
}

}  // namespace

std::string PrometheusText(const std::vector<v1::MetricFamily>& families) {
  std::vector<prometheus::MetricFamily> converted;
  for (const v1::MetricFamily& family : families) {
    prometheus::MetricFamily& to = converted.emplace_back();
    to.name = family.name();
    to.help = family.help();
    to.type = GetType(family.type());
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      to.metric.push_back(GetMetric(metric));
    }
  }
  return prometheus::TextSerializer().Serialize(converted);
}

}  // namespace ballast
