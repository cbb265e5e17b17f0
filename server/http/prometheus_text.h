#ifndef BALLAST_SERVER_HTTP_PROMETHEUS_TEXT_H_
#define BALLAST_SERVER_HTTP_PROMETHEUS_TEXT_H_

#include <string>
#include <vector>

#include "proto/metrics_service.pb.h"

namespace ballast {

// Formats `families` in Prometheus text format 0.0.4, by prometheus-cpp.
std::string PrometheusText(const std::vector<v1::MetricFamily>& families);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_PROMETHEUS_TEXT_H_
