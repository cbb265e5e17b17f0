#ifndef BALLAST_CLIENT_BALLASTCTL_TOP_H_
#define BALLAST_CLIENT_BALLASTCTL_TOP_H_

#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/ballastctl/server_option.h"
#include "client/ballastctl/snapshot.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"

namespace ballast {

// `top`: a server, live.
void AddTop(CommandLine* line, std::shared_ptr<const ServerOption> server);

// What is shown of a server, with its balance by rank: lines of at most 80
// columns, at most `lines` of them. Rates are those since `before`; "-"
// without. Pure.
std::string TopView(const Snapshot& now, const Snapshot* before, int lines);

struct TopOptions {
  absl::Duration interval = absl::Seconds(2);
  uint64_t rounds = 0;  // views; 0: without end
  bool clears = false;  // the screen before each view
  int lines = 24;
};
absl::Status RunTop(LoaderClient* client, const TopOptions& options,
                    Clock* clock, std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_TOP_H_
