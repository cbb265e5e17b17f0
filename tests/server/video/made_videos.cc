#include "tests/server/video/made_videos.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {

bool HasFfmpeg() { return std::system("ffmpeg -version >/dev/null 2>&1") == 0; }

void RunFfmpeg(const std::string& arguments) {
  const std::string command =
      absl::StrCat("ffmpeg -nostdin -loglevel error -y -threads 1 ", arguments);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

std::string VideoPath(const std::string& name) {
  return absl::StrCat(testing::TempDir(), "/", name);
}

std::string MakeVideo(const std::string& name, const std::string& size,
                      const std::string& seconds,
                      const std::string& arguments) {
  const std::string path = VideoPath(name);
  RunFfmpeg(absl::StrCat("-f lavfi -i testsrc2=size=", size,
                         ":rate=30:duration=", seconds, " ", arguments, " ",
                         path));
  return path;
}

std::vector<std::string> DecodeAll(const std::string& path, uint32_t width,
                                   uint32_t height) {
  const std::string raw = path + ".rgb";
  RunFfmpeg(absl::StrCat("-noautorotate -i ", path,
                         " -vf scale=flags=bilinear -pix_fmt rgb24 "
                         "-vsync passthrough -f rawvideo ",
                         raw));
  std::ifstream file(raw, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t frame = size_t{width} * height * 3;
  EXPECT_EQ(bytes.size() % frame, 0u) << path;
  std::vector<std::string> frames;
  for (size_t at = 0; at + frame <= bytes.size(); at += frame) {
    frames.push_back(bytes.substr(at, frame));
  }
  return frames;
}

OpenVideo::OpenVideo(const std::string& path)
    : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat stat = {};
  EXPECT_EQ(fstat(fd.get(), &stat), 0) << path;
  bytes = {fd.get(), 0, static_cast<uint64_t>(stat.st_size)};
}

}  // namespace ballast
