#ifndef BALLAST_SERVER_HTTP_STATUS_JSON_H_
#define BALLAST_SERVER_HTTP_STATUS_JSON_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/balance.pb.h"
#include "proto/metrics_service.pb.h"
#include "server/monitor/state_history.h"

namespace ballast {

// Limit of points of an answer: more than a chart has pixels for.
inline constexpr size_t kMaxPoints = 360;

// The page's figures over the last `range`, one object:
//   ballast_history 1: the version of this format, for a page that compares
//     jobs and reads a file
//   server (its name), start (seconds since 1970: the first point)
//   columns ["seconds", HistoryPoint::kColumns...]
//   points [[..]]: one number for each column, or null; in ascending order
std::string HistoryJson(const v1::GetHistoryResponse& history);
std::string HistoryJson(const std::string& server, const StateHistory& history,
                        absl::Duration range);

// The page's data. Its size is bounded for any job: in larger modules one bar
// covers several consecutive ranks and shows the largest of their loads.
inline constexpr int kMaxBars = 256;
inline constexpr int kMaxListed = 100;  // clients, bad samples, stalls

// `current` may be null; `history` holds steps in ascending order. Returns one
// object:
//   server, uptime_seconds, step (null before the first)
//   memory {in_use, limit} (bytes)
//   numbers {NAME: value}: every counter and gauge, labels in its name
//     ("ballast_images_total use=vision")
//   times [{name, count, sum, p50, p99}]: every histogram, in seconds
//   balance null or {step, micro_batches, modules [{module, ranks,
//     ranks_a_bar, spread_before, spread_after, before [..], after [..],
//     samples, bytes, within_servers {samples, bytes}, between_servers}]}
//   history [{step, modules [{module, spread_before, spread_after}]}]
//   clients_total, clients [GetStatusResponse.Client, with the module, rank and
//     split of its role in place of `role`]
//   bad_samples_total, max_bad_samples, bad_samples
//     [GetStatusResponse.BadSample], stalls [GetStatusResponse.Stall]
std::string PageJson(
    const v1::GetStatusResponse& status,
    const std::vector<v1::MetricFamily>& families,
    const v1::StepBalance* current,
    const std::vector<std::shared_ptr<const v1::StepBalance>>& history);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_STATUS_JSON_H_
