#ifndef BALLAST_SERVER_SERVE_HTTP_PAGES_H_
#define BALLAST_SERVER_SERVE_HTTP_PAGES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/balance.pb.h"
#include "proto/metrics_service.pb.h"
#include "server/serve/http/http_server.h"
#include "server/serve/monitor/state_history.h"

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
//   balance null or {step, micro_batches, spread_before, spread_after,
//     modules [{module, ranks, ranks_a_bar, spread_before, spread_after,
//     before [..], after [..], samples, bytes, within_servers {samples, bytes},
//     between_servers}]}
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

// An answer of one line of text.
HttpResponse PlainAnswer(int status, absl::string_view text);

// The header Content-Security-Policy that allows a page its own script, style,
// data and pictures, and nothing from elsewhere. `page` holds one <script> and
// one <style>.
std::string PagePolicy(absl::string_view page);

// The answer to a request that no page of ours takes: 405 for methods other
// than GET and HEAD; 421 if `is_local` and the request's host is neither a
// numeric address nor localhost, so that no page of another site can read ours
// under that site's name (DNS rebinding). nullopt: it may pass.
std::optional<HttpResponse> RefuseAtDoor(const HttpRequest& request,
                                         bool is_local);

// Pages by path:
//   /            the page (page.html, page.css, page.js), for anyone who may
//                connect: it holds nothing of the job, and asks for a token if
//                one is needed
//   /metrics     for Prometheus
//   /api/status  the page's data as JSON (PageJson)
//   /api/history?seconds=3600
//                its figures of the last seconds, 60 to 86,400
//                (HistoryJson)
//   /api/compared?server=0&seconds=3600
//                the figures of a server of another job (compared_servers.h);
//                serve.compare_with counts from 0
// The last four are subject to `check`; all other paths are 404. Answers only
// GET and HEAD.
struct PageSources {
  std::function<std::string()> metrics;
  std::function<std::string()> status;
  std::function<std::string(absl::Duration range)> history;
  std::function<std::string(size_t server, absl::Duration range)> compared;
  // Whether a request with this `Authorization` may see them: OK, or
  // UNAUTHENTICATED or PERMISSION_DENIED with the reason. Null: every request
  // may.
  std::function<absl::Status(const std::optional<std::string>&)> check;
  // True if only this machine can reach the server. Then a request's host must
  // be a numeric address or localhost, so that no page of another site can read
  // this one under that site's name (DNS rebinding).
  bool is_local = true;
};

HttpServer::Handler MakePages(PageSources sources);

// Formats `families` in Prometheus text format 0.0.4, by prometheus-cpp.
std::string PrometheusText(const std::vector<v1::MetricFamily>& families);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_HTTP_PAGES_H_
