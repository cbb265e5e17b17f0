#ifndef BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
#define BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_

#include <vector>

#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// Makes the fingerprint of everything that the schedule depends on, with that
// of the data alone (proto/schedule/fingerprint.h): sources (name, weight,
// index digest), order, model, batch, dp sizes, which ranks share a server,
// balance, packing. It leaves out paths, addresses, `serve`, `security`, and
// which of the reordering deliveries is used, since none of these changes which
// rank trains on which sample. `config.model.tokenizer` holds the tokenizer's
// digest (Tokenizer::digest), since its path does not identify it.
v1::Fingerprint ScheduleFingerprint(
    const v1::Config& config, const std::vector<const SourceIndex*>& indexes);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
