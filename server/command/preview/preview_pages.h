#ifndef BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_PAGES_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/schedule.pb.h"
#include "server/command/preview/sample_view.h"
#include "server/job/job_setup.h"
#include "server/serve/http/http_server.h"

namespace ballast {

// A sample found by its name.
struct NamedSample {
  std::string source;
  uint64_t ordinal = 0;  // in the source's index
  std::string name;      // RawSample::name: "docs-000003.tar: 000123"
};

struct NameSearch {
  std::vector<NamedSample> found;
  uint64_t looked_at = 0;  // samples searched
  bool complete = false;   // every sample of the split was looked at
};

// The samples of a split's sources whose names contain `text`, in the order of
// the indexes, at most `most` of them. The index holds no names, so each
// sample's text is read: ends after `longest` and returns the matches so far.
// Samples that cannot be read are skipped. Blocks on the disk. Errors:
// INVALID_ARGUMENT (no text).
absl::StatusOr<NameSearch> SearchNames(const OpenedJob& job, v1::Split split,
                                       absl::string_view text, size_t most,
                                       absl::Duration longest);

// A rank's micro-batch.
struct RankPlace {
  v1::Split split = v1::SPLIT_TRAIN;
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint32_t rank = 0;  // data-parallel
  uint64_t step = 0;
  uint32_t micro_batch = 0;
};

// Positions of samples of a micro-batch, in ascending order.
struct RankSamples {
  std::vector<uint64_t> reads;
  std::vector<uint64_t> trains_on;
};

// The samples of the micro-batch that the rank reads, and the samples that it
// trains on. Errors: OUT_OF_RANGE (the step has no such micro-batch), NOT_FOUND
// (the job has no such module), as Scheduler::Schedule.
absl::StatusOr<RankSamples> SamplesOfRank(const OpenedJob& job,
                                          const RankPlace& place);

// The preview's pages by path, for this machine only:
//   /                                                   the page
//   /api/job                                            JobJson
//   /api/sample?split=train&position=17                 ViewJson
//   /api/find?split=train&source=docs&sample=5          {"position": n}
//   /api/search?split=train&name=000123                 {"matches": [{source,
//                          sample, name}], "looked_at": n, "complete": bool}
//   /api/gallery?source=docs&only=nothing_learnt&least=0&most=99&order=cost&from=0
//                          Gallery::PageJson; all but the source may lack
//   /api/card?source=docs&sample=5                      Gallery::CardJson
//   /api/thumbnail?source=docs&sample=5                 a PNG file
//   /api/bad?cause=CAUSE                                Gallery::BadJson
//   /api/rank?split=train&module=vision&rank=0&step=3&micro_batch=0
//                          {"reads": [positions], "trains_on": [positions]}
//   /api/crop?split=train&position=17&crop=0            a PNG file
//   /api/clip?split=train&position=17&clip=0            a PNG file: features
//   /api/audio?split=train&position=17&clip=0           a WAV file: the clip as
//                          the model hears it
//   /api/image?split=train&position=17&image=0          the file as stored
//   /api/crops?split=train&position=17&image=0          a PNG file: DrawCropsOn
// Data that are not available are {"error": why} with status 400 (a parameter
// is missing or wrong), 404 (no such sample), 504 (not found in 20 s) or 500.
// Keeps the pictures of the last 4 samples. `job` and `viewer` must outlive the
// handler, which is thread-safe.
HttpServer::Handler MakePreviewPages(const OpenedJob* job,
                                     const SampleViewer* viewer);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_PREVIEW_PAGES_H_
