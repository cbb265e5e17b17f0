#ifndef BALLAST_TRAINER_SHIM_MEETING_SERVER_H_
#define BALLAST_TRAINER_SHIM_MEETING_SERVER_H_

#include <memory>
#include <vector>

#include "client/loader_client.h"

namespace ballast {

// The first of `servers`, at least one, that serves: ranks meet through it,
// over NCCL and over Gloo. If none does, the first, which Rendezvous then waits
// for. Asks one server after the other; one that hangs takes 10 s.
LoaderClient* MeetingServer(
    const std::vector<std::unique_ptr<LoaderClient>>& servers);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_MEETING_SERVER_H_
