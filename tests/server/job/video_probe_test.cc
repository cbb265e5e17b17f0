// Facts of videos that an index is built from.

#include "server/job/video_probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "common/small_file.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

RawVideo VideoOf(int fd) {
  RawVideo video;
  EXPECT_GE(fd, 0);
  video.fd = std::make_shared<const OwnedFd>(fd);
  struct stat info = {};
  EXPECT_EQ(fstat(fd, &info), 0);
  video.size = static_cast<uint64_t>(info.st_size);
  return video;
}

class VideoProbeTest : public ::testing::Test {
 protected:
  static std::string GetPath(const std::string& name) {
    return ::testing::TempDir() + "/" + name;
  }
  static void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(GetPath(name), std::ios::binary) << bytes;
  }
  static RawVideo Open(const std::string& name) {
    return VideoOf(open(GetPath(name).c_str(), O_RDONLY | O_CLOEXEC));
  }

  // Facts whose width is the size of the video.
  VideoProbe Probe(size_t most) {
    return MakeVideoProbe(
        [this](const VideoBytes& video) -> absl::StatusOr<VideoFacts> {
          ++reads_;
          if (!failure_.ok()) return failure_;
          VideoFacts facts;
          facts.width = static_cast<uint32_t>(video.bytes);
          return facts;
        },
        most);
  }

  int reads_ = 0;
  absl::Status failure_;
};

TEST_F(VideoProbeTest, ReadsAFileOnce) {
  Write("a", "1234");
  const VideoProbe probe = Probe(10);
  EXPECT_EQ(probe(Open("a"))->width, 4u);
  EXPECT_EQ(probe(Open("a"))->width, 4u);
  EXPECT_EQ(reads_, 1);
  // A part of it is another video.
  RawVideo part = Open("a");
  part.offset = 1;
  part.size = 3;
  EXPECT_EQ(probe(part)->width, 3u);
  EXPECT_EQ(reads_, 2);
  // So are other bytes.
  Write("a", "12345");
  EXPECT_EQ(probe(Open("a"))->width, 5u);
  EXPECT_EQ(reads_, 3);
}

// 1,800 frames of 8K are 60,000 million pixels.
TEST_F(VideoProbeTest, AVideoWhoseFramesTakeMinutesIsADataFault) {
  Write("a", "1234");
  uint32_t keys = 1800;
  const auto read = [&](const VideoBytes&) -> absl::StatusOr<VideoFacts> {
    ++reads_;
    VideoFacts facts;
    facts.width = 7680;
    facts.height = 4320;
    for (uint32_t i = 0; i < 1800; ++i) {
      facts.table.frames.push_back({i, i, i / keys * keys});
    }
    return facts;
  };
  const VideoProbe probe = MakeVideoProbe(read, 10);
  EXPECT_TRUE(IsDataFault(probe(Open("a")).status()));
  EXPECT_TRUE(IsDataFault(probe(Open("a")).status()));
  EXPECT_EQ(reads_, 1);
  keys = 600;
  EXPECT_TRUE(MakeVideoProbe(read, 10)(Open("a")).ok());
}

TEST_F(VideoProbeTest, ForgetsTheOldest) {
  const VideoProbe probe = Probe(2);
  for (const char* name : {"a", "b", "c"}) {
    Write(name, name);
    EXPECT_TRUE(probe(Open(name)).ok());
  }
  EXPECT_TRUE(probe(Open("c")).ok());
  EXPECT_TRUE(probe(Open("b")).ok());
  EXPECT_EQ(reads_, 3);
  EXPECT_TRUE(probe(Open("a")).ok());
  EXPECT_EQ(reads_, 4);
}

TEST_F(VideoProbeTest, RemembersFaultsOfAFileAlone) {
  Write("a", "1");
  const VideoProbe probe = Probe(10);
  failure_ = absl::UnavailableError("the disk");
  EXPECT_EQ(probe(Open("a")).status(), failure_);
  // The machine's fault ends the build.
  failure_ = absl::FailedPreconditionError("no libraries");
  EXPECT_TRUE(absl::IsUnavailable(probe(Open("a")).status()));
  failure_ = absl::DeadlineExceededError("silence");
  EXPECT_TRUE(absl::IsInvalidArgument(probe(Open("a")).status()));
  EXPECT_EQ(reads_, 3);
  failure_ = absl::OkStatus();
  EXPECT_EQ(probe(Open("a")).status().message(), "silence");
  EXPECT_EQ(reads_, 3);
}

// The number of such a file is given to the next one.
TEST_F(VideoProbeTest, RemembersNothingThatOnlyMemoryHolds) {
  const VideoProbe probe = Probe(10);
  const RawVideo video = VideoOf(memfd_create("video", MFD_CLOEXEC));
  EXPECT_TRUE(probe(video).ok());
  EXPECT_TRUE(probe(video).ok());
  EXPECT_EQ(reads_, 2);
}

}  // namespace
}  // namespace ballast
