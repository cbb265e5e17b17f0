#include "server/http/pages.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "server/http/page_html.h"

namespace ballast {

namespace {

// 'sha256-...' of the text between `begin` and `end` in the page.
std::string SourceHash(absl::string_view page, absl::string_view begin,
                       absl::string_view end) {
  const size_t first = page.find(begin) + begin.size();
  const absl::string_view text = page.substr(first, page.find(end) - first);
  const std::string digest = absl::HexStringToBytes(Sha256Hex(absl::MakeSpan(
      reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  return absl::StrCat("'sha256-", absl::Base64Escape(digest), "'");
}

// Returns whether `host` is localhost or an address, with or without a port.
bool IsLocalName(absl::string_view host) {
  if (!host.empty() && host.front() == '[') return true;  // IPv6
  host = host.substr(0, host.rfind(':'));
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isdigit(c) || c == '.';
  });
}

}  // namespace

HttpResponse PlainAnswer(int status, absl::string_view text) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat(text, "\n");
  return response;
}

std::string PagePolicy(absl::string_view page) {
  return absl::StrCat(
      "Content-Security-Policy: default-src 'none'; connect-src 'self'; "
      "img-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'; script-src ",
      SourceHash(page, "<script>", "</script>"), "; style-src ",
      SourceHash(page, "<style>", "</style>"), "\r\n");
}

std::optional<HttpResponse> RefuseAtDoor(const HttpRequest& request,
                                         bool is_local) {
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = PlainAnswer(405, "only GET and HEAD are answered");
    response.headers = "Allow: GET, HEAD\r\n";
    return response;
  }
  if (is_local && request.host.has_value() && !IsLocalName(*request.host)) {
    return PlainAnswer(
        421,
        "this server listens for its own machine; ask it as localhost or by "
        "its address");
  }
  return std::nullopt;
}

namespace {

HttpResponse Refuse(const absl::Status& why) {
  const bool unknown = absl::IsUnauthenticated(why);
  HttpResponse response =
      PlainAnswer(unknown ? 401 : 403, absl::string_view(why.message()));
  if (unknown) response.headers = "WWW-Authenticate: Bearer\r\n";
  return response;
}

// The range of /api/history and /api/compared; nullopt: missing or invalid.
std::optional<absl::Duration> GetRange(const HttpRequest& request) {
  const auto found = request.query.find("seconds");
  uint32_t seconds = 0;
  if (found == request.query.end() ||
      !absl::SimpleAtoi(found->second, &seconds) || seconds < 60 ||
      seconds > 86400) {
    return std::nullopt;
  }
  return absl::Seconds(seconds);
}

// The server of /api/compared; the first if none is named; a number past the
// last server if the name is no number.
size_t GetServer(const HttpRequest& request) {
  const auto found = request.query.find("server");
  if (found == request.query.end()) return 0;
  uint32_t server = 0;
  return absl::SimpleAtoi(found->second, &server) ? server : SIZE_MAX;
}

HttpResponse GetData(const PageSources& sources, const HttpRequest& request) {
  HttpResponse response;
  response.content_type = "application/json";
  if (request.path == "/metrics") {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = sources.metrics();
  } else if (request.path == "/api/status") {
    response.body = sources.status();
  } else {
    const std::optional<absl::Duration> range = GetRange(request);
    if (!range.has_value()) {
      return PlainAnswer(400, "wanted ?seconds=N, a number of 60 to 86400");
    }
    response.body = request.path == "/api/history"
                        ? sources.history(*range)
                        : sources.compared(GetServer(request), *range);
  }
  return response;
}

HttpResponse AnswerPage(const PageSources& sources, const std::string& policy,
                        const HttpRequest& request) {
  std::optional<HttpResponse> refused = RefuseAtDoor(request, sources.is_local);
  if (refused.has_value()) return *std::move(refused);
  if (request.path == "/") {
    HttpResponse response;
    response.content_type = "text/html; charset=utf-8";
    response.body = kPageHtml;
    response.headers = policy;
    return response;
  }
  if (request.path != "/metrics" && request.path != "/api/status" &&
      request.path != "/api/history" && request.path != "/api/compared") {
    return PlainAnswer(404,
                       "nothing here; wanted /, /metrics, /api/status, "
                       "/api/history or /api/compared");
  }
  if (sources.check != nullptr) {
    const absl::Status allowed = sources.check(request.authorization);
    if (!allowed.ok()) return Refuse(allowed);
  }
  return GetData(sources, request);
}

}  // namespace

HttpServer::Handler MakePages(PageSources sources) {
  return [sources = std::move(sources),
          policy = PagePolicy(kPageHtml)](const HttpRequest& request) {
    return AnswerPage(sources, policy, request);
  };
}

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
