#include "client/ballastctl/commands.h"

#include <iostream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ballastctl/quantities.h"
#include "common/status_macros.h"
#include "common/table.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 metrics\n"
    "  ballastctl --server 127.0.0.1:7070 metrics --prefix ballast_stage "
    "--json\n"
    "\n"
    "docs/metrics.md says what each is. JSON keys: the names, with labels as\n"
    "in \"ballast_images_total use=vision\"; values: a number, or of a\n"
    "histogram {count, sum, p50, p99} (seconds).";

std::string NumberText(const std::string& name, double number) {
  if (absl::EndsWith(name, "_ratio")) return RatioText(number);
  if (absl::StrContains(name, "_bytes")) return BytesText(number);
  if (name == "process_start_time_seconds") {
    return absl::StrCat(static_cast<int64_t>(number));
  }
  if (absl::StrContains(name, "_seconds")) return SecondsText(number);
  return CountText(number);
}

std::string MetricsJson(const v1::GetStatsResponse& stats) {
  Json json = Json::object();
  for (const v1::MetricFamily& family : stats.families()) {
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      const std::string name = MetricName(family, metric);
      if (!metric.has_histogram()) {
        json[name] = metric.number();
        continue;
      }
      const DurationHistogram::Snapshot times = GetSnapshot(metric.histogram());
      json[name] = {{"count", times.count()},
                    {"sum", times.sum},
                    {"p50", times.Quantile(0.5)},
                    {"p99", times.Quantile(0.99)}};
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The cells after the name.
std::vector<std::string> GetCells(const v1::MetricFamily& family,
                                  const v1::MetricFamily::Metric& metric) {
  if (!metric.has_histogram()) {
    return {NumberText(family.name(), metric.number())};
  }
  const DurationHistogram::Snapshot times = GetSnapshot(metric.histogram());
  return {CountText(times.count()), SecondsText(times.Quantile(0.5)),
          SecondsText(times.Quantile(0.99))};
}

// "  module=vision when=before", under the name of its family.
std::string LabelsText(const v1::MetricFamily::Metric& metric) {
  std::string text = " ";
  for (const v1::MetricFamily::Label& label : metric.labels()) {
    absl::StrAppend(&text, " ", label.name(), "=",
                    label.value().empty() ? "\"\"" : label.value());
  }
  return Printable(text);
}

}  // namespace

std::string MetricsTable(const v1::GetStatsResponse& stats) {
  Table table(
      {{"metric", Table::kLeft}, {"value or count"}, {"median"}, {"99 %"}});
  const auto add = [&table](std::string name, std::vector<std::string> cells) {
    cells.insert(cells.begin(), std::move(name));
    table.AddRow(std::move(cells));
  };
  for (const v1::MetricFamily& family : stats.families()) {
    const std::string name = Printable(family.name());
    const bool labelled =
        family.metrics_size() > 1 ||
        (family.metrics_size() == 1 && !family.metrics(0).labels().empty());
    if (labelled) add(name, {});
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      add(labelled ? LabelsText(metric) : name, GetCells(family, metric));
    }
  }
  return table.ToString();
}

absl::Status PrintMetrics(QueryClient* client, const std::string& prefix,
                          bool json, std::ostream* out) {
  BALLAST_ASSIGN_OR_RETURN(const v1::GetStatsResponse stats,
                           client->GetStats(prefix));
  *out << (json ? MetricsJson(stats) : MetricsTable(stats));
  return Flush(*out);
}

void AddMetrics(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Given {
    std::string prefix;
    bool json = false;
  };
  auto given = std::make_shared<Given>();
  Command* command = line->AddCommand(
      line->program(), "metrics",
      "Shows every instrument of a server: what it has built and sent, how "
      "long\n"
      "that took, its queue, memory, caches and clients.",
      kExamples, [server, given]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetQueryClient(*server));
        return PrintMetrics(client.get(), given->prefix, given->json,
                            &std::cout);
      });
  command
      ->AddText("--prefix", &given->prefix,
                "only those whose names begin with this")
      .TypeName("NAME");
  command->AddFlag("--json", &given->json, "one JSON object");
}

}  // namespace ballast
