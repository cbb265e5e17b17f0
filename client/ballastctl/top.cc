#include "client/ballastctl/top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ballastctl/quantities.h"
#include "common/status_macros.h"
#include "proto/module.h"

namespace ballast {
namespace {

constexpr size_t kWidth = 80;
constexpr int kBarWidth = 24;
constexpr int kMostRanks = 8;  // bars of a module

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 top\n"
    "  ballastctl --server 127.0.0.1:7070 top --once\n"
    "\n"
    "Ctrl-C ends it.";

using Numbers = std::map<std::string, double>;

Numbers NumbersOf(const v1::GetStatsResponse& stats) {
  Numbers numbers;
  for (const v1::MetricFamily& family : stats.families()) {
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      if (metric.has_histogram()) continue;
      numbers[MetricName(family, metric)] = metric.number();
    }
  }
  return numbers;
}

double Of(const Numbers& numbers, const std::string& name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

// Lines of at most kWidth bytes, all of one byte a column.
class View {
 public:
  explicit View(int lines) : left_(std::max(lines, 1)) {}
  int left() const { return left_; }
  void Add(absl::string_view line) {
    if (left_ == 0) return;
    --left_;
    std::string printable = Printable(line.substr(0, kWidth));
    for (char& c : printable) {
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
    printable.erase(printable.find_last_not_of(' ') + 1);
    absl::StrAppend(&text_, printable, "\n");
  }
  std::string Take() && { return std::move(text_); }

 private:
  int left_;
  std::string text_;
};

void AddRates(const TopSnapshot& now, const TopSnapshot* before, View* view) {
  const Numbers numbers = NumbersOf(now.stats);
  const Numbers old = before == nullptr ? Numbers() : NumbersOf(before->stats);
  const double seconds =
      before == nullptr ? 0 : absl::ToDoubleSeconds(now.at - before->at);
  const auto rate = [&](absl::Span<const char* const> names, auto text) {
    if (seconds <= 0) return std::string("-");
    double sum = 0;
    for (const char* name : names) {
      sum += std::max(Of(numbers, name) - Of(old, name), 0.0);
    }
    return text(sum / seconds);
  };
  view->Add(
      absl::StrFormat("images %8s/s   read %10s/s   sent %10s/s   tokens %8s/s",
                      rate({"ballast_images_total use=vision"}, CountText),
                      rate({"ballast_image_read_bytes_total"}, BytesText),
                      rate({"ballast_sent_bytes_total way=shared_memory",
                            "ballast_sent_bytes_total way=stream"},
                           BytesText),
                      rate({"ballast_tokens_total"}, CountText)));
  view->Add(absl::StrFormat(
      "memory %s of %s   workers %.0f of %.0f busy   %s samples waiting",
      BytesText(now.status.memory_in_use()), BytesText(now.status.memory()),
      Of(numbers, "ballast_workers_busy"), Of(numbers, "ballast_workers"),
      CountText(Of(numbers, "ballast_samples_waiting"))));
  view->Add(absl::StrFormat(
      "blocks %.0f in work, %.0f ready, %s reused   bad samples %d of %d   "
      "stalls %d",
      Of(numbers, "ballast_blocks state=in_work"),
      Of(numbers, "ballast_blocks state=ready"),
      CountText(Of(numbers, "ballast_blocks_reused_total")),
      now.status.bad_samples_size(), now.status.max_bad_samples(),
      now.status.stalls_size()));
}

std::string Bar(double load, double most) {
  const double share = most > 0 ? std::clamp(load / most, 0.0, 1.0) : 0;
  return std::string(static_cast<size_t>(share * kBarWidth + 0.5), '#');
}

void AddBalance(const v1::StepBalance& balance, View* view) {
  for (const v1::ModuleBalance& module : balance.modules()) {
    const int ranks =
        std::min(module.load_after_size(), module.load_before_size());
    if (ranks == 0 || module.spread_before() == 0) continue;
    view->Add("");
    view->Add(absl::StrFormat(
        "%s: slowest rank by mean %s as read, %s as trained; moved %s",
        std::string(ModuleName(module.module())),
        RatioText(module.spread_before()), RatioText(module.spread_after()),
        BytesText(module.within_servers().bytes() +
                  module.between_servers().bytes())));
    double most = 0;
    for (int r = 0; r < ranks; ++r) {
      most = std::max({most, module.load_before(r), module.load_after(r)});
    }
    for (int r = 0; r < std::min(ranks, kMostRanks); ++r) {
      view->Add(absl::StrFormat(
          "%6d  %-24s %8s  %-24s %8s", r, Bar(module.load_before(r), most),
          CountText(module.load_before(r)), Bar(module.load_after(r), most),
          CountText(module.load_after(r))));
    }
    if (ranks > kMostRanks) {
      view->Add(
          absl::StrFormat("        and %d more ranks", ranks - kMostRanks));
    }
  }
}

void AddTimes(const v1::GetStatsResponse& stats, View* view) {
  std::vector<std::string> cells;
  for (const v1::MetricFamily& family : stats.families()) {
    if (family.name() != "ballast_stage_seconds" &&
        family.name() != "ballast_block_wait_seconds" &&
        family.name() != "ballast_block_send_seconds") {
      continue;
    }
    for (const v1::MetricFamily::Metric& metric : family.metrics()) {
      if (!metric.has_histogram()) continue;
      const DurationHistogram::Snapshot times = SnapshotOf(metric.histogram());
      if (times.count() == 0) continue;
      const std::string name = metric.labels().empty()
                                   ? family.name().substr(14, 4)
                                   : metric.labels(0).value();
      cells.push_back(absl::StrFormat("%-12s %8s %8s", Printable(name),
                                      SecondsText(times.Quantile(0.5)),
                                      SecondsText(times.Quantile(0.99))));
    }
  }
  if (cells.empty()) return;
  view->Add("");
  view->Add(
      "time           median     99 %       time           median     99 %");
  for (size_t i = 0; i < cells.size(); i += 2) {
    view->Add(absl::StrFormat("%-32s       %s", cells[i],
                              i + 1 < cells.size() ? cells[i + 1] : ""));
  }
}

const char* StateText(v1::GetStatusResponse::Client::State state) {
  switch (state) {
    case v1::GetStatusResponse::Client::STATE_WAITS_FOR_BLOCK:
      return "waits for a block";
    case v1::GetStatusResponse::Client::STATE_SENDING:
      return "is sent a block";
    case v1::GetStatusResponse::Client::STATE_HOLDS_BACK:
      return "has no room";
    default:
      return "";
  }
}

void AddClients(const v1::GetStatusResponse& status, View* view) {
  if (status.clients().empty()) return;
  view->Add("");
  view->Add(absl::StrFormat("%-14s %12s %7s  %-18s %8s %10s  %s", "client",
                            "step", "behind", "state", "for", "holds", ""));
  for (const auto& client : status.clients()) {
    view->Add(absl::StrFormat(
        "%-14s %12s %7d  %-18s %8s %10s  %s",
        absl::StrCat(std::string(ModuleName(client.role().module())), " ",
                     client.role().dp_rank()),
        absl::StrCat(client.step(), ".", client.micro_batch()), client.lag(),
        StateText(client.state()), SecondsText(client.seconds()),
        BytesText(client.held_bytes()),
        client.shared_memory() ? "shm" : "net"));
  }
}

void AddStalls(const v1::GetStatusResponse& status, View* view) {
  for (const auto& stall : status.stalls()) {
    view->Add(absl::StrFormat("held up for %s: %s of %s",
                              SecondsText(stall.seconds()), stall.stage(),
                              stall.sample()));
  }
}

}  // namespace

absl::StatusOr<TopSnapshot> TakeSnapshot(LoaderClient* client, Clock* clock) {
  TopSnapshot snapshot;
  snapshot.at = clock->Now();
  BALLAST_ASSIGN_OR_RETURN(snapshot.status, client->GetStatus());
  BALLAST_ASSIGN_OR_RETURN(snapshot.stats, client->GetStats(""));
  if (!snapshot.status.has_current_step()) return snapshot;
  v1::GetBalanceRequest request;
  request.set_from_step(snapshot.status.current_step());
  request.set_ranks(true);
  BALLAST_ASSIGN_OR_RETURN(const v1::GetBalanceResponse balance,
                           client->GetBalance(request));
  if (!balance.steps().empty()) snapshot.balance = balance.steps(0);
  return snapshot;
}

std::string TopView(const TopSnapshot& now, const TopSnapshot* before,
                    int lines) {
  View view(lines);
  view.Add(absl::StrFormat(
      "ballast %s   up %s   step %s   %d clients", now.status.server(),
      SecondsText(now.status.uptime_seconds()),
      now.status.has_current_step() ? absl::StrCat(now.status.current_step())
                                    : "-",
      now.status.clients_total()));
  AddRates(now, before, &view);
  AddStalls(now.status, &view);
  if (now.balance.has_value()) AddBalance(*now.balance, &view);
  AddTimes(now.stats, &view);
  AddClients(now.status, &view);
  return std::move(view).Take();
}

absl::Status RunTop(LoaderClient* client, const TopOptions& options,
                    Clock* clock, std::ostream* out) {
  const std::unique_ptr<Sleeper> sleeper = clock->NewSleeper();
  std::optional<TopSnapshot> before;
  for (uint64_t round = 0; options.rounds == 0 || round < options.rounds;
       ++round) {
    if (round > 0) sleeper->Sleep(options.interval);
    BALLAST_ASSIGN_OR_RETURN(TopSnapshot now, TakeSnapshot(client, clock));
    // Home, then what was there is written over or cleared.
    if (options.clears) *out << "\x1b[H\x1b[J";
    if (!options.clears && round > 0) *out << "\n";
    *out << TopView(now, before.has_value() ? &*before : nullptr,
                    options.lines);
    out->flush();
    if (!*out) return absl::UnavailableError("cannot write standard output");
    before = std::move(now);
  }
  return absl::OkStatus();
}

void AddTop(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Given {
    double interval = 2;
    bool once = false;
  };
  auto given = std::make_shared<Given>();
  CLI::App* command = line->AddCommand(
      line->app(), "top",
      "Shows a server live: rates, memory, the load of each rank as read and "
      "as\n"
      "trained, times and clients. On a terminal the view is written over;\n"
      "elsewhere one follows the other.",
      kExamples, [server, given]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, ClientOf(*server));
        TopOptions options;
        options.interval = absl::Seconds(given->interval);
        options.rounds = given->once ? 1 : 0;
        options.clears = isatty(STDOUT_FILENO) && !given->once;
        winsize size = {};
        if (options.clears && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
            size.ws_row > 1) {
          options.lines = size.ws_row - 1;
        } else if (!options.clears) {
          options.lines = 1000;
        }
        return RunTop(client.get(), options, Clock::Real(), &std::cout);
      });
  command
      ->add_option("--interval", given->interval,
                   "seconds between views, 0.1 to 3600")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag("--once", given->once, "one view, and end");
}

}  // namespace ballast
