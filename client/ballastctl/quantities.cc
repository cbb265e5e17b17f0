#include "client/ballastctl/quantities.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

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

std::string MetricName(const v1::MetricFamily& family,
                       const v1::MetricFamily::Metric& metric) {
  std::string name = family.name();
  for (const v1::MetricFamily::Label& label : metric.labels()) {
    absl::StrAppend(&name, " ", label.name(), "=", label.value());
  }
  return OneLine(name);
}

DurationHistogram::Snapshot GetSnapshot(
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

namespace {

constexpr size_t kKeyWidth = 13;

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

}  // namespace

View::View(ViewSize size)
    : left_(std::max(size.lines, 1)),
      width_(std::clamp(size.columns, 1, 160)) {}

void View::Put(absl::string_view line) {
  if (left_ == 0) return;
  --left_;
  line = line.substr(0, line.find_last_not_of(' ') + 1);
  absl::StrAppend(&text_, line, "\n");
}

void View::Add(absl::string_view line) {
  std::string printable = OneLine(line).substr(0, width_);
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  Put(printable);
}

void View::AddWrapped(size_t indent, absl::string_view text) {
  const std::string printable = OneLine(text);
  const std::string margin(indent, ' ');
  std::string line;
  bool begun = false;
  for (const absl::string_view word : absl::StrSplit(printable, ' ')) {
    if (begun && line.size() + 1 + word.size() > width_) {
      Put(line);
      line = absl::StrCat(margin, word);
    } else {
      absl::StrAppend(&line, begun ? " " : "", word);
    }
    begun = true;
  }
  Put(line);
}

void View::AddField(absl::string_view key, absl::string_view value) {
  AddWrapped(kKeyWidth, absl::StrFormat("%-*s%s", kKeyWidth, key, value));
}

void AddClients(const v1::GetStatusResponse& status, int most, View* view) {
  if (status.clients().empty()) return;
  view->Add(absl::StrFormat("%-14s %12s %7s  %-18s %8s %10s  %s", "client",
                            "step", "behind", "state", "for", "holds", ""));
  int shown = std::min(most, status.clients_size());
  // The last line that fits says how many are left out.
  const bool others = status.clients_total() > static_cast<uint64_t>(shown);
  if (shown + (others ? 1 : 0) > view->left())
    shown = std::max(view->left() - 1, 0);
  for (int i = 0; i < shown; ++i) {
    const v1::GetStatusResponse::Client& client = status.clients(i);
    view->Add(absl::StrFormat(
        "%-14s %12s %7d  %-18s %8s %10s  %s",
        absl::StrCat(SplitWord(client.role().split()),
                     ModuleName(client.role().module()), " ",
                     client.role().dp_rank()),
        absl::StrCat(client.step(), ".", client.micro_batch()), client.lag(),
        StateText(client.state()), SecondsText(client.seconds()),
        BytesText(client.held_bytes()),
        client.shared_memory() ? "shm" : "net"));
  }
  if (status.clients_total() > static_cast<uint64_t>(shown)) {
    view->Add(absl::StrFormat("and %d more, not as far behind",
                              status.clients_total() - shown));
  }
}

namespace {

using Numbers = std::map<std::string, double>;

Numbers GetNumbers(const v1::GetStatsResponse& stats) {
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

}  // namespace

std::string ProblemText(const v1::GetStatusResponse::Problem& problem) {
  std::string text = problem.kind();
  if (!problem.subject().empty()) {
    absl::StrAppend(&text, " ", problem.subject());
  }
  if (problem.seconds() > 0) {
    absl::StrAppend(&text, " for ", SecondsText(problem.seconds()));
  }
  return absl::StrCat(text, ": ", problem.text());
}

absl::StatusOr<Snapshot> TakeSnapshot(QueryClient* client, Clock* clock,
                                      bool ranks) {
  Snapshot snapshot;
  snapshot.at = clock->Now();
  BALLAST_ASSIGN_OR_RETURN(snapshot.status, client->GetStatus());
  BALLAST_ASSIGN_OR_RETURN(snapshot.stats, client->GetStats(""));
  if (!snapshot.status.has_current_step()) return snapshot;
  v1::GetBalanceRequest request;
  request.set_from_step(snapshot.status.current_step());
  request.set_ranks(ranks);
  BALLAST_ASSIGN_OR_RETURN(const v1::GetBalanceResponse balance,
                           client->GetBalance(request));
  if (!balance.steps().empty()) snapshot.balance = balance.steps(0);
  return snapshot;
}

Figures GetFigures(const Snapshot& now, const Snapshot* before) {
  const Numbers numbers = GetNumbers(now.stats);
  Figures figures;
  figures.workers = Of(numbers, "ballast_workers");
  figures.workers_busy = Of(numbers, "ballast_workers_busy");
  figures.samples_waiting = Of(numbers, "ballast_samples_waiting");
  figures.blocks_in_work = Of(numbers, "ballast_blocks state=in_work");
  figures.blocks_ready = Of(numbers, "ballast_blocks state=ready");
  figures.blocks_reused = Of(numbers, "ballast_blocks_reused_total");
  figures.schedules_found = Of(numbers, "ballast_schedules_found_total");
  figures.schedules_computed = Of(numbers, "ballast_schedules_computed_total");
  figures.memory_idle = Of(numbers, "ballast_memory_idle_bytes");
  figures.streams_short_of_memory =
      Of(numbers, "ballast_streams_short_of_memory");
  if (before == nullptr || now.at <= before->at) return figures;

  const Numbers old = GetNumbers(before->stats);
  const double seconds = absl::ToDoubleSeconds(now.at - before->at);
  const auto rate = [&](const std::string& name) {
    return std::max(Of(numbers, name) - Of(old, name), 0.0) / seconds;
  };
  Rates& rates = figures.rates.emplace();
  rates.images_encoded = rate("ballast_images_total use=encoded");
  rates.images = rate("ballast_images_total use=vision") + rates.images_encoded;
  rates.read_bytes = rate("ballast_image_read_bytes_total");
  rates.sent_bytes = rate("ballast_sent_bytes_total way=shared_memory") +
                     rate("ballast_sent_bytes_total way=stream");
  rates.tokens = rate("ballast_tokens_total");
  return figures;
}

std::string ChangesText(const v1::GetStatusResponse& status) {
  const uint64_t step = status.current_step();
  int begun = 0;
  while (begun < status.change_steps_size() &&
         status.change_steps(begun) <= step) {
    ++begun;
  }
  const int all = status.change_steps_size();
  std::string text;
  if (begun > 0) {
    text = absl::StrCat(begun, " of ", all, ", from step ",
                        status.change_steps(begun - 1), " on");
  }
  if (begun == all) return text;
  const uint64_t next = status.change_steps(begun);
  absl::StrAppend(&text, begun > 0 ? "; " : "", "number ", begun + 1,
                  " begins at step ", next);
  if (status.has_current_step()) {
    absl::StrAppend(&text, ", in ", next - step,
                    next - step == 1 ? " step" : " steps");
  }
  return text;
}

}  // namespace ballast
