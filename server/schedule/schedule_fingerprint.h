#ifndef BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
#define BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_

#include <vector>

#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/config/batch_sizes.h"
#include "server/corpus/index/source_index.h"
#include "server/text/text_version.h"

namespace ballast {

// Makes the fingerprint of everything that the schedules of all splits depend
// on, with that of the data of `split` alone (proto/schedule/fingerprint.h), so
// that a split that is added later changes the first but not the second. The
// first covers sources (name, weight, split, index digest), order, model,
// batch (with the changes of both under the first step that they alter), dp
// sizes, which ranks share a server, balance, packing, where images are
// decoded, which files have been checked, and `text_version`, which is another
// than this release's in tests alone. It leaves out paths, addresses, `serve`,
// `security`, and which of the reordering deliveries is used, since none of
// these changes which rank trains on which sample. `sizes` are BatchSizes of
// `config`. `config.model.tokenizer` holds the tokenizer's digest
// (Tokenizer::digest), since its path does not identify it.
v1::Fingerprint ScheduleFingerprint(
    const v1::Config& config, const std::vector<const SourceIndex*>& indexes,
    v1::Split split, const std::vector<BatchSize>& sizes,
    int text_version = kTextVersion);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
