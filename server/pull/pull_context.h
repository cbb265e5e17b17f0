#ifndef BALLAST_SERVER_PULL_PULL_CONTEXT_H_
#define BALLAST_SERVER_PULL_PULL_CONTEXT_H_

#include "proto/schedule.pb.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/loader.h"
#include "server/monitor/client_board.h"
#include "server/pull/call_count.h"
#include "server/pull/lane_directory.h"
#include "server/pull/pull_limits.h"
#include "server/pull/refusal.h"

namespace ballast {

// State shared by all Pulls of a server. Pointers are not owned; their targets
// must outlive the gRPC server, and so must this.
struct PullContext {
  Loader* loader = nullptr;
  v1::Fingerprint fingerprint;
  const Refusal* refusal = nullptr;        // ends Pulls with its reason
  CallCount* calls = nullptr;              // the calls a drain waits for
  PullInstruments* instruments = nullptr;  // may be null
  ClientBoard* clients = nullptr;          // may be null
  PullLimits limits;
  LaneDirectory lanes;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_CONTEXT_H_
