#include <sys/ioctl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/quantities.h"
#include "common/instruments.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

constexpr int kMaxRanksShown = 8;  // bars for each module

constexpr char kTopExamples[] =
    "  ballastctl --server 127.0.0.1:7070 top\n"
    "  ballastctl --server 127.0.0.1:7070 top --once\n"
    "\n"
    "Ctrl-C ends it.";

void AddRates(const Figures& figures, const v1::GetStatusResponse& status,
              View* view) {
  const auto rate = [&](double Rates::*of, auto text) {
    return figures.rates.has_value() ? text(*figures.rates.*of)
                                     : std::string("-");
  };
  view->Add(absl::StrFormat(
      "images %8s/s   read %10s/s   sent %10s/s   tokens %8s/s",
      rate(&Rates::images, CountText), rate(&Rates::read_bytes, BytesText),
      rate(&Rates::sent_bytes, BytesText), rate(&Rates::tokens, CountText)));
  view->Add(absl::StrFormat(
      "memory %s of %s   workers %.0f of %.0f busy   %s samples waiting",
      BytesText(status.memory_in_use()), BytesText(status.memory()),
      figures.workers_busy, figures.workers,
      CountText(figures.samples_waiting)));
  view->Add(absl::StrFormat(
      "blocks %.0f in work, %.0f ready, %s reused   bad samples %d of %d   "
      "stalls %d",
      figures.blocks_in_work, figures.blocks_ready,
      CountText(figures.blocks_reused), status.bad_samples_size(),
      status.max_bad_samples(), status.stalls_size()));
}

std::string Bar(double load, double most, int width) {
  const double share = most > 0 ? std::clamp(load / most, 0.0, 1.0) : 0;
  return std::string(static_cast<size_t>(share * width + 0.5), '#');
}

void AddBalance(const v1::StepBalance& balance, View* view) {
  std::string line = absl::StrFormat(
      "step %d: %s tokens in %d micro-batches", balance.step(),
      CountText(balance.totals().tokens()), balance.micro_batches());
  if (balance.pack_room() > 0) {
    absl::StrAppendFormat(
        &line, ", packs %.1f %% full",
        100.0 * balance.totals().tokens() / balance.pack_room());
  }
  view->Add(line);
  if (balance.spread_after() > 0) {
    view->Add(absl::StrFormat(
        "all modules: heaviest rank over mean %s as read, %s as trained",
        RatioText(balance.spread_before()), RatioText(balance.spread_after())));
  }
  for (const v1::ModuleBalance& module : balance.modules()) {
    const int ranks =
        std::min(module.load_after_size(), module.load_before_size());
    if (ranks == 0 || module.spread_before() == 0) continue;
    view->Add("");
    view->Add(absl::StrFormat(
        "%s: heaviest rank over mean %s as read, %s as trained; moved %s",
        std::string(ModuleName(module.module())),
        RatioText(module.spread_before()), RatioText(module.spread_after()),
        BytesText(module.within_servers().bytes() +
                  module.between_servers().bytes())));
    // Beside both bars: a rank's number, two loads and the spaces between.
    const int bar = std::max(static_cast<int>(view->width()) - 28, 16) / 2;
    view->Add(absl::StrFormat("%6s  %-*s  %-*s", "rank", bar + 9,
                              "load as read", bar + 9, "load as trained"));
    double most = 0;
    for (int r = 0; r < ranks; ++r) {
      most = std::max({most, module.load_before(r), module.load_after(r)});
    }
    for (int r = 0; r < std::min(ranks, kMaxRanksShown); ++r) {
      view->Add(absl::StrFormat("%6d  %-*s %8s  %-*s %8s", r, bar,
                                Bar(module.load_before(r), most, bar),
                                CountText(module.load_before(r)), bar,
                                Bar(module.load_after(r), most, bar),
                                CountText(module.load_after(r))));
    }
    if (ranks > kMaxRanksShown) {
      view->Add(
          absl::StrFormat("        and %d more ranks", ranks - kMaxRanksShown));
    }
  }
}

// Stages that are added up under one name; empty: not shown.
std::string TimeName(const v1::MetricFamily& family,
                     const v1::MetricFamily::Metric& metric) {
  if (family.name() == "ballast_block_wait_seconds") return "wait";
  if (family.name() == "ballast_block_send_seconds") return "send";
  const bool of_ranks = family.name() == "ballast_rank_seconds";
  if (!of_ranks && family.name() != "ballast_stage_seconds") return "";
  for (const v1::MetricFamily::Label& label : metric.labels()) {
    if (label.name() == "stage") return OneLine(label.value());
    // Sums over all modules' ranks. Training time says nothing about the
    // server.
    if (label.name() == "phase" && label.value() != "train") {
      return absl::StrCat("rank ", OneLine(label.value()));
    }
  }
  return "";
}

void AddTimes(const v1::GetStatsResponse& stats, View* view) {
  std::vector<std::pair<std::string, DurationHistogram::Snapshot>> all;
  for (const v1::MetricFamily& family : stats.families()) {
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      const std::string name = TimeName(family, metric);
      if (name.empty() || !metric.has_histogram()) continue;
      const DurationHistogram::Snapshot times = GetSnapshot(metric.histogram());
      if (times.count() == 0) continue;
      const auto same = std::find_if(
          all.begin(), all.end(),
          [&name](const auto& named) { return named.first == name; });
      if (same == all.end()) {
        all.emplace_back(name, times);
        continue;
      }
      for (size_t i = 0; i < times.counts.size(); ++i) {
        same->second.counts[i] += times.counts[i];
      }
    }
  }
  if (all.empty()) return;
  std::vector<std::string> cells;
  for (const auto& [name, times] : all) {
    cells.push_back(absl::StrFormat("%-13s %8s %8s", name,
                                    SecondsText(times.Quantile(0.5)),
                                    SecondsText(times.Quantile(0.99))));
  }
  view->Add("");
  view->Add(
      "time            median     99 %       time            median     99 %");
  for (size_t i = 0; i < cells.size(); i += 2) {
    view->Add(absl::StrFormat("%-33s      %s", cells[i],
                              i + 1 < cells.size() ? cells[i + 1] : ""));
  }
}

void AddStalls(const v1::GetStatusResponse& status, View* view) {
  for (const auto& problem : status.problems()) {
    view->Add(absl::StrCat("problem: ", OneLine(ProblemText(problem))));
  }
  for (const auto& stall : status.stalls()) {
    view->Add(absl::StrFormat("held up for %s: %s of %s",
                              SecondsText(stall.seconds()), stall.stage(),
                              stall.sample()));
  }
}

ViewSize TerminalSize() {
  ViewSize shown = {.lines = 24};
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return shown;
  // The cursor is on its own line below.
  if (size.ws_row > 1) shown.lines = size.ws_row - 1;
  if (size.ws_col > 0) shown.columns = size.ws_col;
  return shown;
}

bool HasColour() {
  const char* const none = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return (none == nullptr || *none == '\0') && terminal != nullptr &&
         absl::string_view(terminal) != "dumb";
}

bool MayComeBack(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

std::string TopView(const Snapshot& now, const Snapshot* before,
                    ViewSize size) {
  View view(size);
  view.Add(absl::StrFormat(
      "ballast %s   up %s   step %s   %d clients", now.status.server(),
      SecondsText(now.status.uptime_seconds()),
      now.status.has_current_step() ? absl::StrCat(now.status.current_step())
                                    : "-",
      now.status.clients_total()));
  if (!now.status.change_steps().empty()) {
    view.Add(absl::StrCat("changes ", ChangesText(now.status)));
  }
  AddRates(GetFigures(now, before), now.status, &view);
  AddStalls(now.status, &view);
  if (now.balance.has_value()) AddBalance(*now.balance, &view);
  AddTimes(now.stats, &view);
  if (!now.status.clients().empty()) view.Add("");
  AddClients(now.status, now.status.clients_size(), &view);
  return std::move(view).Take();
}

std::string OutageView(absl::string_view server, absl::Duration gone,
                       absl::string_view reason, ViewSize size) {
  View view(size);
  view.Add(absl::StrCat("ballast ", server, "   no answer for ",
                        SecondsText(absl::ToDoubleSeconds(gone)),
                        "; asking on"));
  while (!reason.empty()) {
    view.Add(reason);
    reason.remove_prefix(std::min(reason.size(), view.width()));
  }
  return std::move(view).Take();
}

std::string ColourView(absl::string_view view) {
  std::string text;
  bool first = true;
  for (const absl::string_view line : absl::StrSplit(view, '\n')) {
    if (!first) text += "\n";
    const bool bad = absl::StartsWith(line, "problem: ") ||
                     absl::StartsWith(line, "held up for ") ||
                     absl::StrContains(line, "   no answer for ");
    const bool head = first || absl::StrContains(line, ": heaviest rank ") ||
                      absl::StartsWith(line, "step ");
    const bool dim = absl::StartsWith(line, "time  ") ||
                     absl::StartsWith(line, "client  ") ||
                     absl::StartsWith(line, "  rank  ") ||
                     absl::StartsWith(line, "and ");
    const char* const begin = bad    ? "\x1b[1;31m"
                              : head ? "\x1b[1m"
                              : dim  ? "\x1b[2m"
                                     : "";
    absl::StrAppend(&text, begin, line, *begin != '\0' ? "\x1b[m" : "");
    first = false;
  }
  return text;
}

absl::Status RunTop(const std::function<absl::StatusOr<Snapshot>()>& take,
                    const TopOptions& options, Clock* clock,
                    std::ostream* out) {
  const std::unique_ptr<Sleeper> sleeper = clock->NewSleeper();
  std::optional<Snapshot> before;
  absl::Time answered = absl::InfinitePast();  // of the last answer
  for (uint64_t round = 0; options.rounds == 0 || round < options.rounds;
       ++round) {
    if (round > 0) sleeper->Sleep(options.interval);
    absl::StatusOr<Snapshot> now = take();
    std::string view;
    if (now.ok()) {
      answered = now->at;
      view = TopView(*now, before.has_value() ? &*before : nullptr,
                     options.size());
      before = *std::move(now);
    } else if (round > 0 && MayComeBack(now.status())) {
      view = OutageView(options.server, clock->Now() - answered,
                        std::string(now.status().message()), options.size());
      before.reset();
    } else {
      return now.status();
    }
    // Cursor home; the new view overwrites or clears the old.
    if (options.clears) *out << "\x1b[H\x1b[J";
    if (!options.clears && round > 0) *out << "\n";
    *out << (options.colours ? ColourView(view) : view);
    BALLAST_RETURN_IF_ERROR(Flush(*out));
  }
  return absl::OkStatus();
}

void AddTop(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Given {
    double interval = 2;
    bool once = false;
  };
  auto given = std::make_shared<Given>();
  Command* command = line->AddCommand(
      line->program(), "top",
      "Shows a server live: rates, memory, the load of each rank as read and "
      "as\n"
      "trained, times and clients. On a terminal the view is written over, in\n"
      "colours unless NO_COLOR is set; elsewhere one follows the other. A "
      "server\n"
      "that goes away while it is watched is asked on until it is back.",
      kTopExamples, [server, given]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetQueryClient(*server));
        TopOptions options;
        options.interval = absl::Seconds(given->interval);
        options.rounds = given->once ? 1 : 0;
        options.clears = isatty(STDOUT_FILENO) && !given->once;
        if (options.clears) options.size = TerminalSize;
        options.colours = options.clears && HasColour();
        options.server = client->address();
        Clock* const clock = Clock::Real();
        return RunTop(
            [&client, clock] {
              return TakeSnapshot(client.get(), clock, /*ranks=*/true);
            },
            options, clock, &std::cout);
      });
  command
      ->AddReal("--interval", &given->interval,
                "seconds between views, 0.1 to 3600")
      .Between(0.1, 3600.0)
      .TypeName("SECONDS")
      .ShowDefault();
  command->AddFlag("--once", &given->once, "one view, and end");
}

namespace {

using Json = nlohmann::ordered_json;

constexpr char kMetricsExamples[] =
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
  return OneLine(text);
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
    const std::string name = OneLine(family.name());
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
      kMetricsExamples, [server, given]() -> absl::Status {
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
