#ifndef BALLAST_CLIENT_BALLASTCTL_TOP_H_
#define BALLAST_CLIENT_BALLASTCTL_TOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/ballastctl/quantities.h"
#include "client/ballastctl/query_client.h"
#include "common/clock.h"
#include "common/command_line.h"

namespace ballast {

// `top`: a live view of a server.
void AddTop(CommandLine* line, std::shared_ptr<const ServerOption> server);

// The view of a server, with its balance by rank: lines that fit `size`. Rates
// are since `before`; "-" without it. Pure.
std::string TopView(const Snapshot& now, const Snapshot* before, ViewSize size);

// The view while `server` does not answer. Pure.
std::string OutageView(absl::string_view server, absl::Duration gone,
                       absl::string_view reason, ViewSize size);

struct TopOptions {
  std::string server;  // shown while it does not answer
  absl::Duration interval = absl::Seconds(2);
  uint64_t rounds = 0;  // views; 0: without end
  bool clears = false;  // clears the screen before each view
  // Called before each view, since a terminal's size changes.
  std::function<ViewSize()> size = [] { return ViewSize(); };
};

// Shows the snapshot from `take` every interval. A server that is away at first
// is an error, as is any failure other than of the connection. If the server
// goes away later (UNAVAILABLE, DEADLINE_EXCEEDED), it is asked until it is
// back.
absl::Status RunTop(const std::function<absl::StatusOr<Snapshot>()>& take,
                    const TopOptions& options, Clock* clock, std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_TOP_H_
