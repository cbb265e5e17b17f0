#include "client/ballastctl/snapshot.h"

#include <algorithm>
#include <map>
#include <string>

#include "client/ballastctl/quantities.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

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

}  // namespace

absl::StatusOr<Snapshot> TakeSnapshot(MetricsClient* client, Clock* clock,
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

Figures FiguresOf(const Snapshot& now, const Snapshot* before) {
  const Numbers numbers = NumbersOf(now.stats);
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

  const Numbers old = NumbersOf(before->stats);
  const double seconds = absl::ToDoubleSeconds(now.at - before->at);
  const auto rate = [&](const std::string& name) {
    return std::max(Of(numbers, name) - Of(old, name), 0.0) / seconds;
  };
  Figures::Rates& rates = figures.rates.emplace();
  rates.images_encoded = rate("ballast_images_total use=encoded");
  rates.images =
      rate("ballast_images_total use=vision") + rates.images_encoded;
  rates.read_bytes = rate("ballast_image_read_bytes_total");
  rates.sent_bytes = rate("ballast_sent_bytes_total way=shared_memory") +
                     rate("ballast_sent_bytes_total way=stream");
  rates.tokens = rate("ballast_tokens_total");
  return figures;
}

}  // namespace ballast
