#ifndef BALLAST_TESTS_SERVER_MEDIA_VIDEO_MADE_VIDEOS_H_
#define BALLAST_TESTS_SERVER_MEDIA_VIDEO_MADE_VIDEOS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/small_file.h"
#include "server/media/video/decoder/decoder_process.h"

namespace ballast {

// Whether the program `ffmpeg` can be started, with which tests make videos.
bool HasFfmpeg();

// Runs `ffmpeg` with these arguments, which may redirect; asserts that it
// succeeds.
void RunFfmpeg(const std::string& arguments);

// A new path in the test's temporary folder.
std::string VideoPath(const std::string& name);

// A moving picture of `seconds` at 30 frames a second, encoded as `arguments`
// say. Returns its path.
std::string MakeVideo(const std::string& name, const std::string& size,
                      const std::string& seconds, const std::string& arguments);

// All frames of the video as `ffmpeg` decodes them, one after another, in 8-bit
// RGB: an oracle that neither seeks nor leaves out a frame.
std::vector<std::string> DecodeAll(const std::string& path, uint32_t width,
                                   uint32_t height);

// An open video.
struct OpenVideo {
  explicit OpenVideo(const std::string& path);

  OwnedFd fd;
  VideoBytes bytes;
};

// Paths of short videos in six containers, made by `ffmpeg`.
std::vector<std::string> MakeVideosToDamage();

// Damages a copy of a file in one of the ways that files in the wild are.
std::string Damaged(std::string bytes, std::mt19937_64* random);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_MEDIA_VIDEO_MADE_VIDEOS_H_
