#ifndef BALLAST_SERVER_SCHEDULE_JOB_VIDEOS_H_
#define BALLAST_SERVER_SCHEDULE_JOB_VIDEOS_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// Whether a source of the job, of any split, has videos.
bool HaveVideos(const std::vector<const SourceIndex*>& indexes);

// Checks the settings of a job, and sets model.video if it has videos; clears
// it if it has none. Errors: UNIMPLEMENTED naming a setting that does not carry
// videos.
absl::Status ResolveVideos(const std::vector<const SourceIndex*>& indexes,
                           v1::Config* config);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_JOB_VIDEOS_H_
