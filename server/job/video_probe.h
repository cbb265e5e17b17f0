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

// Reads facts of videos for indexes. Data sets ask several questions about a
// video, so the facts of the last `most` files are remembered, or that they are
// damaged: some 200 bytes each. A file that changes is read again. Videos that
// only memory holds are not remembered. Errors: as VideoProbe; UNAVAILABLE also
// if FFmpeg's libraries cannot be loaded, which is no sample's fault. Silence
// of the decoder is a fault of the file. Thread-safe.
VideoProbe MakeVideoProbe(FactsReader read, size_t most = 65'536);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_VIDEO_PROBE_H_
