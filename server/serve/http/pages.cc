#include "server/serve/http/pages.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/instruments.h"
#include "common/message_fields.h"
#include "common/sha256.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/serve/http/page_html.h"

namespace ballast {

std::string HistoryJson(const v1::GetHistoryResponse& history) {
  using Json = nlohmann::ordered_json;
  Json columns = Json::array({"seconds"});
  for (const auto& column : history.columns()) columns.push_back(column.name());
  Json points = Json::array();
  for (int i = 0; i < history.seconds_size(); ++i) {
    Json row = Json::array({history.seconds(i)});
    // NaN becomes null.
    for (const auto& column : history.columns()) {
      row.push_back(column.values(i));
    }
    points.push_back(std::move(row));
  }
  const Json json = {{"ballast_history", 1},
                     {"server", history.server()},
                     {"start", history.start()},
                     {"columns", std::move(columns)},
                     {"points", std::move(points)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string HistoryJson(const std::string& server, const StateHistory& history,
                        absl::Duration range) {
  return HistoryJson(MakeHistoryResponse(server, history, range, kMaxPoints));
}

namespace {

using Json = nlohmann::ordered_json;

std::string GetName(v1::Module module) {
  return std::string(ModuleName(module));
}

// "ballast_images_total use=vision"
std::string GetName(const v1::MetricFamily& family,
                    const v1::MetricFamily::Metric& metric) {
  std::string name = family.name();
  for (const v1::MetricFamily::Label& label : metric.labels()) {
    absl::StrAppend(&name, " ", label.name(), "=", label.value());
  }
  return name;
}

Json TimesJson(const std::string& name,
               const v1::MetricFamily::Histogram& histogram) {
  DurationHistogram::Snapshot snapshot;
  const int buckets = std::min<int>(histogram.counts_size(),
                                    static_cast<int>(snapshot.counts.size()));
  for (int i = 0; i < buckets; ++i) snapshot.counts[i] = histogram.counts(i);
  return {{"name", name},
          {"count", snapshot.count()},
          {"sum", histogram.sum()},
          {"p50", snapshot.Quantile(0.5)},
          {"p99", snapshot.Quantile(0.99)}};
}

Json BarsJson(const google::protobuf::RepeatedField<double>& loads,
              int ranks_a_bar) {
  Json bars = Json::array();
  for (int first = 0; first < loads.size(); first += ranks_a_bar) {
    bars.push_back(*std::max_element(
        loads.begin() + first,
        loads.begin() + std::min(first + ranks_a_bar, loads.size())));
  }
  return bars;
}

Json BalanceJson(const v1::StepBalance& balance) {
  Json modules = Json::array();
  for (const v1::ModuleBalance& module : balance.modules()) {
    const int ranks = module.load_after_size();
    const int ranks_a_bar = std::max((ranks + kMaxBars - 1) / kMaxBars, 1);
    modules.push_back({{"module", GetName(module.module())},
                       {"ranks", ranks},
                       {"ranks_a_bar", ranks_a_bar},
                       {"spread_before", module.spread_before()},
                       {"spread_after", module.spread_after()},
                       {"before", BarsJson(module.load_before(), ranks_a_bar)},
                       {"after", BarsJson(module.load_after(), ranks_a_bar)},
                       {"samples", module.samples()},
                       {"bytes", module.bytes()},
                       {"within_servers", ToJson(module.within_servers())},
                       {"between_servers", ToJson(module.between_servers())}});
  }
  return {{"step", balance.step()},
          {"micro_batches", balance.micro_batches()},
          {"tokens", balance.totals().tokens()},
          {"pack_room", balance.pack_room()},
          {"spread_before", balance.spread_before()},
          {"spread_after", balance.spread_after()},
          {"modules", std::move(modules)}};
}

Json HistoryJson(const v1::StepBalance& balance) {
  Json modules = Json::array();
  for (const v1::ModuleBalance& module : balance.modules()) {
    modules.push_back({{"module", GetName(module.module())},
                       {"spread_before", module.spread_before()},
                       {"spread_after", module.spread_after()}});
  }
  return {{"step", balance.step()}, {"modules", std::move(modules)}};
}

Json ClientsJson(const v1::GetStatusResponse& status) {
  Json clients = Json::array();
  for (const auto& client : status.clients()) {
    if (clients.size() == kMaxListed) break;
    Json& json = clients.emplace_back(ToJson(client));
    json.erase("role");
    json["module"] = GetName(client.role().module());
    json["rank"] = client.role().dp_rank();
    json["split"] = std::string(SplitName(client.role().split()));
  }
  return clients;
}

template <typename Messages>
Json ListJson(const Messages& messages) {
  Json list = Json::array();
  for (const auto& message : messages) {
    if (list.size() == kMaxListed) break;
    list.push_back(ToJson(message));
  }
  return list;
}

}  // namespace

std::string PageJson(
    const v1::GetStatusResponse& status,
    const std::vector<v1::MetricFamily>& families,
    const v1::StepBalance* current,
    const std::vector<std::shared_ptr<const v1::StepBalance>>& history) {
  Json numbers = Json::object();
  Json times = Json::array();
  for (const v1::MetricFamily& family : families) {
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      const std::string name = GetName(family, metric);
      if (metric.has_histogram()) {
        times.push_back(TimesJson(name, metric.histogram()));
      } else {
        numbers[name] = metric.number();
      }
    }
  }
  Json past = Json::array();
  for (const auto& balance : history) past.push_back(HistoryJson(*balance));
  const Json json = {
      {"server", status.server()},
      {"uptime_seconds", status.uptime_seconds()},
      {"step",
       status.has_current_step() ? Json(status.current_step()) : Json()},
      {"change_steps",
       Json(std::vector<uint64_t>(status.change_steps().begin(),
                                  status.change_steps().end()))},
      {"memory",
       {{"in_use", status.memory_in_use()}, {"limit", status.memory()}}},
      {"numbers", std::move(numbers)},
      {"times", std::move(times)},
      {"balance", current == nullptr ? Json() : BalanceJson(*current)},
      {"history", std::move(past)},
      {"clients_total", status.clients_total()},
      {"clients", ClientsJson(status)},
      {"problems", ListJson(status.problems())},
      {"bad_samples_total", status.bad_samples_size()},
      {"max_bad_samples", status.max_bad_samples()},
      {"bad_samples", ListJson(status.bad_samples())},
      {"left_out", ListJson(status.left_out())},
      {"costs", status.costs()},
      {"stalls", ListJson(status.stalls())}};
  // File names may be any bytes; whatever is not UTF-8 is replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

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
      "img-src 'self' data:; media-src 'self'; base-uri 'none'; form-action "
      "'none'; "
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
