#ifndef BALLAST_TESTS_INTEGRATION_VIDEO_JOB_H_
#define BALLAST_TESTS_INTEGRATION_VIDEO_JOB_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/types/span.h"
#include "proto/model.pb.h"
#include "server/config/config_loader.h"
#include "server/media/video/video_plan.h"

namespace ballast {

// A video of a sample, and its clip.
struct Shown {
  std::string file;  // or a folder: a list of the pictures in it
  VideoClip clip = {};
};

// A sample as it was written.
struct Written {
  // Its question, in which <image> and <video> stand for its images and videos,
  // in order.
  std::string question;
  std::vector<Shown> videos = {};
  uint64_t images = 0;
  // Its only video has a sound header, and frames that cannot be decoded.
  bool torn = false;
};

// Two sources with videos that `ffmpeg` makes: "chat", JSON lines that name
// files and lists of pictures, and "tapes", a tar with both as members. One
// line, not among the samples, names bad.mp4, which is no video.
struct VideoDataSet {
  std::string folder;
  // By source and number in its index.
  std::map<std::pair<std::string, uint64_t>, Written> samples;
};

// Made once for all tests.
const VideoDataSet& VideoData();

// A job over both sources for two ranks of each module. `video`: model.video.
LoadedConfig VideoConfig(const std::string& profile,
                         const std::string& delivery, const std::string& video);

// As above, with the settings of InspectedVideo.
LoadedConfig VideoConfig(const std::string& profile,
                         const std::string& delivery);

// The object that `inspect video` prints of a video of the data set.
const nlohmann::json& InspectedVideo(const std::string& profile,
                                     const Shown& shown);

// A sample's ids as text: runs of placeholders as "[image*N]", "[video*N]" and
// "[audio*N]", marks by their names, and bytes.
std::string GetText(const v1::TokenIds& known, absl::Span<const int64_t> ids);

}  // namespace ballast

#endif  // BALLAST_TESTS_INTEGRATION_VIDEO_JOB_H_
