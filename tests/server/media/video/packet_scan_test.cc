// What decoding would refuse is refused before, as an index asks for facts.

#include "server/media/video/video_reader.h"

#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/fakes/read_file.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class PacketScanTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "needs the program ffmpeg";
  }

  std::string Refusal(const std::string& path) {
    return std::string(
        reader_.ReadFacts(OpenVideo(path).bytes).status().message());
  }

  VideoReader reader_{1};
};

TEST_F(PacketScanTest, WhatCannotBeDecodedIsRefusedByTheFacts) {
  // Cut within a group of pictures: packets of MPEG-TS have 188 bytes, packs of
  // MPEG-PS 2048. Of that, whose pictures have no times, fewer come out.
  for (const auto& [container, packet, frame] :
       {std::tuple("ts", 188, "frame 0 is damaged"),
        std::tuple("mpg", 2048, " is damaged")}) {
    const std::string whole =
        ReadFile(MakeVideo(absl::StrCat("groups.", container), "320x240", "2",
                           "-c:v mpeg2video -g 30 -bf 2 -b:v 2M"));
    const std::string cut = VideoPath(absl::StrCat("cut_group.", container));
    std::ofstream(cut, std::ios::binary)
        << whole.substr(packet * (whole.size() / packet / 4));
    const auto facts = reader_.ReadFacts(OpenVideo(cut).bytes);
    EXPECT_THAT(std::string(facts.status().message()),
                HasSubstr("begins within a group of pictures: frame"));
    EXPECT_THAT(std::string(facts.status().message()), HasSubstr(frame));
  }
}

// A picture with which decoding begins, behind which leading ones refer to the
// group before: decoders pass over them, and FFmpeg's program is the oracle.
TEST_F(PacketScanTest, LeadingPicturesOfACutAreNotShown) {
  const std::string whole =
      MakeVideo("open.mp4", "112x84", "4",
                "-c:v libx265 -pix_fmt yuv420p -x265-params "
                "log-level=none:keyint=30:open-gop=1:bframes=4");
  for (const char* container : {"mkv", "ts", "mov"}) {
    SCOPED_TRACE(container);
    const std::string cut = VideoPath(absl::StrCat("cut.", container));
    // MOV of Matroska's, without an edit list that hides them.
    const std::string from =
        container == std::string("mov")
            ? absl::StrCat("-i ", VideoPath("cut.mkv"),
                           " -c copy -use_editlist 0 ")
            : absl::StrCat("-ss 1.2 -i ", whole, " -c copy ");
    RunFfmpeg(from + cut);
    const OpenVideo video(cut);
    const auto facts = reader_.ReadFacts(video.bytes);
    ASSERT_TRUE(facts.ok()) << facts.status();
    const std::vector<std::string> wanted = DecodeAll(cut, 112, 84);
    ASSERT_EQ(facts->frames(), wanted.size());
    FrameForm form;
    form.width = 112;
    form.height = 84;
    std::vector<uint32_t> all(wanted.size());
    std::iota(all.begin(), all.end(), 0);
    std::vector<uint8_t> found(wanted.size() * wanted[0].size());
    const absl::Status read = reader_.ReadFrames(video.bytes, *facts, all, form,
                                                 absl::MakeSpan(found));
    ASSERT_TRUE(read.ok()) << read;
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(std::equal(
          wanted[i].begin(), wanted[i].end(),
          found.begin() + i * wanted[i].size(),
          [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }))
          << i;
    }
  }
}

// Bytes that a recording has lost within the file.
TEST_F(PacketScanTest, LossInATransportStreamIsRefused) {
  constexpr size_t kPacket = 188;
  const std::string whole = ReadFile(MakeVideo(
      "whole.ts", "320x240", "3", "-c:v libx264 -g 12 -bf 2 -pix_fmt yuv420p"));
  const std::string path = VideoPath("lost.ts");
  const size_t middle = whole.size() / kPacket / 2;
  std::ofstream(path, std::ios::binary)
      << whole.substr(0, kPacket * middle)
      << whole.substr(kPacket * (middle + 40));
  EXPECT_THAT(Refusal(path), HasSubstr("bytes are missing at packet "));
  EXPECT_THAT(Refusal(path), HasSubstr(" is damaged"));
}

// By their times the frames of both would alternate.
TEST_F(PacketScanTest, FilesThatWereJoinedByBytesAreRefused) {
  for (const auto& [container, arguments] :
       {std::tuple("ts", "-c:v libx264 -pix_fmt yuv420p"),
        std::tuple("mkv", "-c:v libx264 -pix_fmt yuv420p"),
        std::tuple("webm", "-c:v libvpx -deadline realtime"),
        std::tuple("ogv", "-c:v libtheora -pix_fmt yuv420p")}) {
    const std::string one = ReadFile(
        MakeVideo(absl::StrCat("one.", container), "112x84", "1", arguments));
    const std::string path = VideoPath(absl::StrCat("joined.", container));
    std::ofstream(path, std::ios::binary) << one << one;
    EXPECT_THAT(Refusal(path), HasSubstr("the times of frames go back at "))
        << path;
  }
}

// 58 frames of 3 s, one of them without a time in MPEG-PS: the rate of the
// header, 30 a second, is not theirs.
TEST_F(PacketScanTest, VariableRateWithoutTimesIsRefused) {
  const std::string path = MakeVideo(
      "variable.mpg", "112x84", "3",
      "-vf \"select='not(mod(n\\,3))+gt(n\\,60)+lt(n\\,12)'\" -vsync vfr "
      "-c:v mpeg2video -g 12");
  EXPECT_THAT(Refusal(path), HasSubstr("58 frames in "));
  EXPECT_THAT(Refusal(path), HasSubstr("wanted 30"));
}

// FFmpeg knows no rate but 1: it would play other times than the file says.
TEST_F(PacketScanTest, EditsAtAnotherSpeedAreRefused) {
  std::string mp4 =
      ReadFile(MakeVideo("plain.mp4", "112x84", "1", "-c:v mpeg4 -bf 2"));
  // Version, count, duration and time come between.
  const size_t rate = mp4.find("elst") + 20;
  ASSERT_EQ(mp4.substr(rate, 4), std::string("\0\1\0\0", 4));
  const std::string path = VideoPath("speed.mp4");
  // A dwell, twice the speed, and half of it.
  for (const char* other : {"\0\0\0\0", "\0\2\0\0", "\0\0\x80\0"}) {
    mp4.replace(rate, 4, std::string(other, 4));
    std::ofstream(path, std::ios::binary) << mp4;
    EXPECT_THAT(Refusal(path), HasSubstr("at another speed"));
  }
}

TEST_F(PacketScanTest, OtherCodecsAreRefusedByName) {
  EXPECT_THAT(Refusal(MakeVideo("s.mov", "112x84", "1", "-c:v svq1")),
              HasSubstr("video of codec svq1; wanted H.264"));
  // Raw pictures of an unknown kind.
  EXPECT_THAT(Refusal(MakeVideo("raw.mov", "112x84", "1",
                                "-c:v rawvideo -pix_fmt yuv420p")),
              HasSubstr("opening the decoder: "));
}

}  // namespace
}  // namespace ballast
