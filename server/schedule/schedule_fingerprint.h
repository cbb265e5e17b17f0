#ifndef BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
#define BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/config/topology.h"
#include "server/media/video/decoder/ffmpeg_version.h"
#include "server/sample/source_index.h"
#include "server/schedule/plan_steps.h"
#include "server/text/text_token.h"

namespace ballast {

// The media of all sources of the job, of any split.
MediaCounts CountMedia(const std::vector<const SourceIndex*>& indexes);

// Whether a source of the job, of any split, has videos.
bool HaveVideos(const std::vector<const SourceIndex*>& indexes);

// Checks the settings of a job, and sets model.video if it has videos; clears
// it if it has none. Errors: UNIMPLEMENTED naming a setting that does not
// support videos.
absl::Status ResolveVideos(const std::vector<const SourceIndex*>& indexes,
                           v1::Config* config);

// Whether a source of the job, of any split, has audio or other media that
// travel as rows.
bool HaveRows(const std::vector<const SourceIndex*>& indexes);

// OK unless a source has media that travel as rows of a kind that the model
// does not take. Errors: UNIMPLEMENTED.
absl::Status CheckRowsTaken(const std::vector<const SourceIndex*>& indexes,
                            const v1::Config& config);

// OK if topology.modules has the modules that take the sources' media. Errors:
// FAILED_PRECONDITION, with what to write.
absl::Status CheckMediaModules(const std::vector<const SourceIndex*>& indexes,
                               const v1::Config& config);

// The processor if it is none of x86-64. On ARM the libraries give damaged JPEG
// files and many videos other pixels, and resampled audio other last bits; mock
// sources may have other lengths.
#ifdef __aarch64__
inline constexpr char kProcessor[] = "aarch64";
#else
inline constexpr char kProcessor[] = "";
#endif

// Rules of this release on this machine; tests give others. `ffmpeg` and
// `processor` are left out if they are empty, as releases before 1.0 did;
// `positions`, of text after videos, if they are 1, as 1.0 did.
struct ReleaseRules {
  int text = kTextVersion;
  int positions = 2;
  int frames = 2;
  std::string ffmpeg = kFfmpegVersion;
  std::string processor = kProcessor;
};

// Makes the fingerprint of everything that the schedules of all splits depend
// on, and the fingerprint of the data of `split` alone
// (proto/schedule/fingerprint.h), so that a split that is added later changes
// the first but not the second. The first covers sources (name, weight, split,
// index digest), order, model, batch (with the changes of both under the first
// step that they alter), dp sizes, which ranks share a server, balance,
// packing, where images are decoded, which files have been checked, whether
// the job keeps revisions (serve.revisions), and `rules`. It leaves out paths,
// addresses, the rest of `serve`, `security`, and which of the reordering
// deliveries is used, since none of these changes which rank trains on which
// sample. `sizes` are BatchSizes of `config`. `config.model.tokenizer` holds
// the tokenizer's digest (Tokenizer::digest), since its path does not identify
// it. `plan`, unless it is null, are the rows of order.plan, whose content
// counts from their first step on.
v1::Fingerprint ScheduleFingerprint(
    const v1::Config& config, const std::vector<const SourceIndex*>& indexes,
    v1::Split split, const std::vector<BatchSize>& sizes,
    const PlanRows* plan = nullptr, const ReleaseRules& rules = {});

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SCHEDULE_FINGERPRINT_H_
