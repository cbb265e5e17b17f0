#include "client/ballastctl/quantities.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace ballast {
namespace {

std::string Scaled(double value, double base,
                   absl::Span<const char* const> units) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  const bool whole = unit == 0 && value == std::floor(value);
  const int digits =
      whole || std::abs(value) >= 100 ? 0 : (std::abs(value) >= 10 ? 1 : 2);
  return absl::StrFormat("%.*f%s", digits, value, units[unit]);
}

}  // namespace

std::string CountText(double count) {
  return Scaled(count, 1000, {"", " k", " M", " G", " T", " P"});
}

std::string BytesText(double bytes) {
  return Scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string SecondsText(double seconds) {
  if (seconds == 0) return "0";
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 0.1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 120) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

std::string RatioText(double ratio) {
  return ratio == 0 ? "-" : absl::StrFormat("%.3f", ratio);
}

std::string Printable(absl::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return printable;
}

std::string MetricName(const v1::MetricFamily& family,
                       const v1::MetricFamily::Metric& metric) {
  std::string name = family.name();
  for (const v1::MetricFamily::Label& label : metric.labels()) {
    absl::StrAppend(&name, " ", label.name(), "=", label.value());
  }
  return Printable(name);
}

DurationHistogram::Snapshot SnapshotOf(
    const v1::MetricFamily::Histogram& histogram) {
  DurationHistogram::Snapshot snapshot;
  const absl::Span<const double> bounds = DurationHistogram::Bounds();
  if (histogram.counts_size() != static_cast<int>(snapshot.counts.size()) ||
      !std::equal(bounds.begin(), bounds.end(), histogram.bounds().begin(),
                  histogram.bounds().end())) {
    return snapshot;
  }
  std::copy(histogram.counts().begin(), histogram.counts().end(),
            snapshot.counts.begin());
  snapshot.sum = histogram.sum();
  return snapshot;
}

}  // namespace ballast
