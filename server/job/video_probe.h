#ifndef BALLAST_SERVER_JOB_VIDEO_PROBE_H_
#define BALLAST_SERVER_JOB_VIDEO_PROBE_H_

#include <cstddef>
#include <functional>

#include "absl/status/statusor.h"
#include "server/corpus/index/index_options.h"
#include "server/video/frame_table.h"
#include "server/video/video_reader.h"

namespace ballast {

// As VideoReader::ReadFacts. Called from several threads at once.
using FactsReader =
    std::function<absl::StatusOr<VideoFacts>(const VideoBytes& video)>;

// Reads facts of videos for indexes. Data sets often refer to the same video
// several times, so the facts of the last `most` files, or the fact that they
// are damaged, are remembered: some 200 bytes each. A file that changes is read
// again. Videos that are only in memory are not remembered. Errors: as
// VideoProbe; UNAVAILABLE also if FFmpeg's libraries cannot be loaded, which is
// no sample's fault. If the decoder stays silent, the file is at fault.
// Thread-safe.
VideoProbe MakeVideoProbe(FactsReader read, size_t most = 65'536);

// The same for any reader of facts: remembers what `read` finds, also of clips
// of audio.
VideoProbe RememberFacts(VideoProbe read, size_t most = 65'536);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_VIDEO_PROBE_H_
