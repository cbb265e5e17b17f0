#ifndef BALLAST_CLIENT_BALLASTCTL_QUANTITIES_H_
#define BALLAST_CLIENT_BALLASTCTL_QUANTITIES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/instruments.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Numbers for people, at most eight columns wide.
std::string CountText(double count);      // "1.23 M"
std::string BytesText(double bytes);      // "12.5 MiB"
std::string SecondsText(double seconds);  // "3.1 ms"
std::string RatioText(double ratio);      // "1.070"; "-" for 0

// A server's text without characters that control a terminal.
std::string Printable(absl::string_view text);

// "ballast_images_total use=vision": the full name of a metric.
std::string MetricName(const v1::MetricFamily& family,
                       const v1::MetricFamily::Metric& metric);

// A histogram from the wire; one with other bounds gives an empty one.
DurationHistogram::Snapshot SnapshotOf(
    const v1::MetricFamily::Histogram& histogram);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_QUANTITIES_H_
