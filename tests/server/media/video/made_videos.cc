#include "tests/server/media/video/made_videos.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/fakes/read_file.h"

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
  const std::string bytes = ReadFile(raw);
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

std::vector<std::string> MakeVideosToDamage() {
  return {
      MakeVideo("d.mp4", "64x48", "1",
                "-c:v libx264 -g 10 -bf 2 -pix_fmt yuv420p"),
      MakeVideo("f.mp4", "64x48", "1",
                "-c:v libx264 -g 10 -pix_fmt yuv420p -movflags faststart"),
      MakeVideo("d.mkv", "64x48", "1",
                "-c:v libx265 -x265-params log-level=none:keyint=10 "
                "-pix_fmt yuv420p"),
      MakeVideo("d.webm", "64x48", "1",
                "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 10"),
      MakeVideo("d.avi", "64x48", "1", "-c:v mpeg4 -g 10 -bf 1"),
      MakeVideo("d.ts", "64x48", "1", "-c:v libx264 -g 10 -pix_fmt yuv420p"),
  };
}

std::string Damaged(std::string bytes, std::mt19937_64* random) {
  const auto below = [&](uint64_t most) { return (*random)() % most; };
  switch (below(6)) {
    case 0:
      bytes.resize(below(bytes.size()));
      break;
    case 1:
      for (uint64_t i = 0; i < 1 + below(8); ++i) {
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
      }
      break;
    case 2:  // in the headers
      for (uint64_t i = 0; i < 1 + below(4); ++i) {
        bytes[below(std::min<size_t>(bytes.size(), 1200))] =
            static_cast<char>(below(256));
      }
      break;
    case 3: {
      const size_t at = below(bytes.size());
      std::fill_n(bytes.begin() + at,
                  std::min<size_t>(bytes.size() - at, 1 + below(4096)), '\0');
      break;
    }
    case 4: {
      const size_t at = below(bytes.size());
      bytes.erase(at, 1 + below(300));
      break;
    }
    default:  // at the end, where the index of many files lies
      for (uint64_t i = 0; i < 1 + below(6); ++i) {
        bytes[bytes.size() - 1 - below(std::min<size_t>(bytes.size(), 1500))] =
            static_cast<char>(below(256));
      }
  }
  return bytes;
}

}  // namespace ballast
