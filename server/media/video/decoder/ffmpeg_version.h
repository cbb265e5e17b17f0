#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_FFMPEG_VERSION_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_FFMPEG_VERSION_H_

namespace ballast {

// The FFmpeg that the decoder programs are built with, and refuse any other
// than: "FFmpeg 8.1.2 (Lavc62.28.102, SwS9.5.102)". Another may round pixels
// otherwise, so it is part of the fingerprint of jobs with videos or audio.
extern const char kFfmpegVersion[];

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_FFMPEG_VERSION_H_
