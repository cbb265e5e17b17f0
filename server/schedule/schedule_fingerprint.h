#ifndef BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
#define BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_

#include <vector>

#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// The fingerprint of all that the schedule depends on, and within it that of
// the data alone (proto/schedule/fingerprint.h): sources (name, weight, index
// digest), order, model, batch, dp sizes, which ranks share a server, balance,
// packing. Not in it: paths, addresses, `serve`, `security`, and which of the
// reordering deliveries carries the bytes, since none of these changes who
// trains on what. `config.model.tokenizer` is the tokenizer's digest
// (Tokenizer::digest), since its path says nothing of it.
v1::Fingerprint ScheduleFingerprint(
    const v1::Config& config, const std::vector<const SourceIndex*>& indexes);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
