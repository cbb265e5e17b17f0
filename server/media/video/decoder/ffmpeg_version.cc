#include "server/media/video/decoder/ffmpeg_version.h"

// Headers alone: the server does not link FFmpeg.
extern "C" {
#include <libavcodec/version.h>
#include <libavutil/ffversion.h>
#include <libswscale/version.h>
}

namespace ballast {

const char kFfmpegVersion[] =
    "FFmpeg " FFMPEG_VERSION " (" LIBAVCODEC_IDENT ", " LIBSWSCALE_IDENT ")";

}  // namespace ballast
