#include "server/http/status_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/instruments.h"
#include "common/message_fields.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

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
      {"bad_samples_total", status.bad_samples_size()},
      {"max_bad_samples", status.max_bad_samples()},
      {"bad_samples", ListJson(status.bad_samples())},
      {"stalls", ListJson(status.stalls())}};
  // File names may be any bytes; whatever is not UTF-8 is replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ballast
