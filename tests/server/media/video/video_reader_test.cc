#include "server/media/video/video_reader.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/media/image/image.h"
#include "server/media/video/decoder/ffmpeg_version.h"
#include "tests/fakes/read_file.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

struct Made {
  const char* name;
  const char* size;
  const char* arguments;
  const char* scan;  // a part of the reason; "" if headers suffice
  bool is_variable = false;
};

const Made kVideos[] = {
    {"h264.mp4", "322x242", "-c:v libx264 -g 30 -bf 3 -pix_fmt yuv420p", ""},
    {"open.mp4", "320x240",
     "-c:v libx264 -bf 3 -x264-params open-gop=1:keyint=24 -pix_fmt yuv420p",
     ""},
    {"refresh.mp4", "320x240",
     "-c:v libx264 -x264-params intra-refresh=1:keyint=20 -pix_fmt yuv420p",
     ""},
    {"bt709.mp4", "320x240",
     "-vf scale=out_color_matrix=bt709 -c:v libx264 -pix_fmt yuv420p "
     "-colorspace bt709",
     ""},
    {"full.mp4", "320x240", "-c:v libx264 -pix_fmt yuvj420p", ""},
    {"odd444.mp4", "162x122", "-vf crop=161:121 -c:v libx264 -pix_fmt yuv444p",
     ""},
    {"h264.mkv", "320x240", "-c:v libx264 -g 30 -pix_fmt yuv420p",
     "does not list"},
    {"h264.ts", "320x240", "-c:v libx264 -g 30 -bf 2 -pix_fmt yuv420p",
     "does not list"},
    {"fragments.mp4", "320x240",
     "-c:v libx264 -g 30 -pix_fmt yuv420p "
     "-movflags frag_keyframe+empty_moov",
     "fragment"},
    {"h264.avi", "320x240", "-c:v libx264 -bf 2 -pix_fmt yuv420p",
     "without times"},
    {"variable.mp4", "320x240",
     "-vf \"select='not(mod(n\\,3))+gt(n\\,40)'\" -vsync vfr -c:v libx264 "
     "-pix_fmt yuv420p",
     "", true},
    {"one.mp4", "64x48", "-frames:v 1 -c:v libx264 -pix_fmt yuv420p", ""},
    {"hevc.mp4", "320x240",
     "-c:v libx265 -x265-params log-level=none:keyint=30 -pix_fmt yuv420p", ""},
    {"layers.mp4", "320x240",
     "-c:v libx265 -x265-params "
     "log-level=none:keyint=30:temporal-layers=1 -pix_fmt yuv420p",
     ""},
    {"hevc10.mkv", "320x240",
     "-c:v libx265 -x265-params log-level=none:keyint=30 "
     "-pix_fmt yuv420p10le",
     "does not list"},
    {"vp8.webm", "320x240",
     "-c:v libvpx -deadline realtime -cpu-used 8 -auto-alt-ref 1 -g 30",
     "does not list"},
    {"vp9odd.webm", "162x122",
     "-vf crop=161:121:exact=1 -c:v libvpx-vp9 -deadline realtime -cpu-used 8 "
     "-g 30 -pix_fmt yuv420p",
     "does not list"},
    {"av1.mp4", "320x240",
     "-c:v libsvtav1 -preset 12 -g 30 -pix_fmt yuv420p 2>/dev/null", ""},
    {"mpeg4.mp4", "320x240", "-c:v mpeg4 -g 30 -bf 2 -q 5", ""},
    {"mpeg4.avi", "320x240", "-c:v mpeg4 -g 30 -bf 2 -q 5", "without times"},
};

// Where ffmpeg writes after its arguments, a redirection must come last.
std::string Make(const Made& made) {
  std::string arguments = made.arguments;
  const size_t redirected = arguments.find(" 2>");
  const std::string path = VideoPath(made.name);
  if (redirected == std::string::npos) {
    return MakeVideo(made.name, made.size, "2", arguments);
  }
  const std::string redirection = arguments.substr(redirected);
  arguments.resize(redirected);
  RunFfmpeg(absl::StrCat("-f lavfi -i testsrc2=size=", made.size,
                         ":rate=30:duration=2 ", arguments, " ", path,
                         redirection));
  return path;
}

class VideoReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "needs the program ffmpeg";
  }

  HelperCounters counters_;
  VideoReader reader_{1, {.counters = &counters_}};
};

std::vector<uint8_t> Read(VideoReader* reader, const OpenVideo& video,
                          const VideoFacts& facts,
                          const std::vector<uint32_t>& wanted,
                          const FrameForm& form) {
  std::vector<uint8_t> out(size_t{form.width} * form.height * 3 *
                           wanted.size());
  const absl::Status status =
      reader->ReadFrames(video.bytes, facts, wanted, form, absl::MakeSpan(out));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST_F(VideoReaderTest, EqualsDecodingAllFramesInOrder) {
  for (const Made& made : kVideos) {
    SCOPED_TRACE(made.name);
    const std::string path = Make(made);
    const OpenVideo video(path);
    const auto facts = reader_.ReadFacts(video.bytes);
    ASSERT_TRUE(facts.ok()) << facts.status();
    std::vector<std::string> all = DecodeAll(path, facts->width, facts->height);
    ASSERT_EQ(facts->frames(), all.size());
    // Of 10 bits and odd sides each FFmpeg places the chroma elsewhere, and the
    // program is Debian's: then frames are compared with ours in order, and
    // pyav_test compares these.
    const bool is_placed = absl::StrContains(made.name, "10") ||
                           absl::StrContains(made.name, "odd");
    if (is_placed && !absl::StartsWith(kFfmpegVersion, "FFmpeg 5.")) {
      std::vector<uint32_t> every(all.size());
      std::iota(every.begin(), every.end(), 0);
      FrameForm stored;
      stored.width = facts->width;
      stored.height = facts->height;
      const std::vector<uint8_t> ours =
          Read(&reader_, video, *facts, every, stored);
      auto next = ours.begin();
      for (std::string& frame : all) {
        frame.assign(next, next + frame.size());
        next += frame.size();
      }
    }
    EXPECT_THAT(facts->scan, HasSubstr(made.scan));
    EXPECT_EQ(facts->scan.empty(), made.scan[0] == '\0') << facts->scan;
    EXPECT_EQ(facts->is_variable, made.is_variable);
    EXPECT_EQ(facts->rotation, 0u);
    FrameForm form;
    form.width = facts->width;
    form.height = facts->height;
    const uint32_t frames = facts->frames();
    // None, one in the middle, one at the end, some twice, many.
    std::vector<std::vector<uint32_t>> choices = {
        {}, {frames / 2}, {frames - 1}, {0, 0, frames - 1, frames - 1}};
    choices.emplace_back();
    for (uint32_t i = 0; i < frames; i += 7) choices.back().push_back(i);
    for (const std::vector<uint32_t>& wanted : choices) {
      const std::vector<uint8_t> got =
          Read(&reader_, video, *facts, wanted, form);
      const size_t bytes = all[0].size();
      for (size_t i = 0; i < wanted.size(); ++i) {
        const std::string frame(got.begin() + i * bytes,
                                got.begin() + (i + 1) * bytes);
        ASSERT_TRUE(frame == all[wanted[i]])
            << "frame " << wanted[i] << " of " << wanted.size() << " wanted";
      }
    }
    // The same with one list of packets for facts and frames.
    const std::vector<uint32_t>& many = choices.back();
    std::vector<std::string> frames_of(many.size(),
                                       std::string(all[0].size(), '\0'));
    const absl::Status status = reader_.ReadChecked(
        video.bytes,
        [&](const VideoFacts& found) {
          EXPECT_EQ(found.frames(), frames);
          return absl::OkStatus();
        },
        many, form,
        [&](size_t i) {
          return absl::MakeSpan(reinterpret_cast<uint8_t*>(frames_of[i].data()),
                                frames_of[i].size());
        });
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < many.size(); ++i) {
      EXPECT_TRUE(frames_of[i] == all[many[i]]) << "frame " << many[i];
    }
  }
  EXPECT_EQ(counters_.starts.value(), 1u);
}

// Far frames are sought; where a seek arrives, and with which packet, differs.
// libswscale's vector code converts pixels in eights and sixteens, and leaves
// out the last ones of a row that has no room for them.
TEST_F(VideoReaderTest, RowsAreConvertedToTheirEnd) {
  for (const uint32_t width : {16, 18, 20, 22, 24, 82, 148, 340, 426, 852}) {
    SCOPED_TRACE(width);
    const std::string path = MakeVideo(absl::StrCat("row", width, ".mp4"),
                                       absl::StrCat(width, "x64"), "0.1",
                                       "-c:v libx264 -pix_fmt yuv420p");
    const OpenVideo video(path);
    const auto facts = reader_.ReadFacts(video.bytes);
    ASSERT_TRUE(facts.ok()) << facts.status();
    FrameForm form;
    form.width = width;
    form.height = 64;
    const std::vector<uint8_t> got =
        Read(&reader_, video, *facts, {0, 1, 2}, form);
    std::string all;
    for (const std::string& frame : DecodeAll(path, width, 64)) all += frame;
    EXPECT_TRUE(std::equal(
        got.begin(), got.end(), all.begin(), all.end(),
        [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }));
  }
}

TEST_F(VideoReaderTest, SeeksToFarFrames) {
  const std::pair<const char*, const char*> videos[] = {
      {"far.mp4", "-c:v libx264 -g 25 -bf 3 -pix_fmt yuv420p"},
      {"far.mkv", "-c:v libx264 -g 25 -bf 3 -pix_fmt yuv420p"},
      {"farb.mp4", "-c:v mpeg4 -g 30 -bf 2 -q 5"},
      {"far.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -g 25"},
  };
  for (const auto& [name, arguments] : videos) {
    SCOPED_TRACE(name);
    const std::string path = MakeVideo(name, "160x120", "10", arguments);
    const OpenVideo video(path);
    const auto facts = reader_.ReadFacts(video.bytes);
    ASSERT_TRUE(facts.ok()) << facts.status();
    const std::vector<std::string> all = DecodeAll(path, 160, 120);
    ASSERT_EQ(facts->frames(), all.size());
    EXPECT_LT(PacketsToDecode(facts->table, {299}), 40u);
    FrameForm form;
    form.width = 160;
    form.height = 120;
    for (const std::vector<uint32_t>& wanted :
         std::vector<std::vector<uint32_t>>{
             {299}, {298}, {270}, {100}, {3, 150, 297}, {75, 76, 240}}) {
      const std::vector<uint8_t> got =
          Read(&reader_, video, *facts, wanted, form);
      const size_t bytes = all[0].size();
      for (size_t i = 0; i < wanted.size(); ++i) {
        const std::string frame(got.begin() + i * bytes,
                                got.begin() + (i + 1) * bytes);
        EXPECT_TRUE(frame == all[wanted[i]]) << "frame " << wanted[i];
      }
    }
  }
}

TEST_F(VideoReaderTest, TurnsAndResizesAsImagesAre) {
  const std::string stored =
      MakeVideo("upright.mp4", "322x242", "1", "-c:v libx264 -pix_fmt yuv420p");
  const std::string path = VideoPath("turned.mp4");
  RunFfmpeg(
      absl::StrCat("-i ", stored, " -c copy -metadata:s:v rotate=90 ", path));
  const OpenVideo video(path);
  const auto facts = reader_.ReadFacts(video.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_EQ(facts->rotation % 180, 90u);
  EXPECT_EQ(facts->shown_width(), 242u);
  const std::string frame = DecodeAll(path, 322, 242)[5];
  RgbImage turned = {242, 322, {}};
  turned.pixels.resize(frame.size());
  for (uint32_t y = 0; y < 322; ++y) {
    for (uint32_t x = 0; x < 242; ++x) {
      const uint32_t from_x = facts->rotation == 90 ? y : 321 - y;
      const uint32_t from_y = facts->rotation == 90 ? 241 - x : x;
      for (int c = 0; c < 3; ++c) {
        turned.pixels[(y * 242 + x) * 3 + c] =
            static_cast<uint8_t>(frame[(from_y * 322 + from_x) * 3 + c]);
      }
    }
  }
  FrameForm form;
  form.width = 112;
  form.height = 168;
  for (const ResampleLibrary library :
       {ResampleLibrary::kPillow12, ResampleLibrary::kPillow13,
        ResampleLibrary::kTorchvision}) {
    form.resampling.library = library;
    std::vector<uint8_t> want(size_t{form.width} * form.height * 3);
    ASSERT_TRUE(Resize(turned, form.resampling, form.width, form.height,
                       absl::MakeSpan(want))
                    .ok());
    EXPECT_EQ(Read(&reader_, video, *facts, {5}, form), want);
  }
  form.apply_rotation = false;
  form.width = 322;
  form.height = 242;
  EXPECT_EQ(Read(&reader_, video, *facts, {5}, form),
            std::vector<uint8_t>(frame.begin(), frame.end()));
}

TEST_F(VideoReaderTest, ReadsAVideoWithinAFile) {
  const std::string path =
      MakeVideo("inner.mp4", "64x48", "1", "-c:v libx264 -pix_fmt yuv420p");
  const std::string bytes = ReadFile(path);
  const std::string outer = VideoPath("outer.tar");
  std::ofstream(outer, std::ios::binary)
      << std::string(1000, 'x') << bytes << std::string(1000, 'x');
  OpenVideo video(outer);
  video.bytes.offset = 1000;
  video.bytes.bytes = bytes.size();
  const auto facts = reader_.ReadFacts(video.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->frames(), 30u);
  EXPECT_EQ(facts->fps, 30);
  EXPECT_EQ(facts->codec, "h264");
}

TEST_F(VideoReaderTest, RefusesOtherFrames) {
  const OpenVideo video(
      MakeVideo("frames.mp4", "64x48", "1", "-c:v libx264 -pix_fmt yuv420p"));
  auto facts = reader_.ReadFacts(video.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  FrameForm form;
  form.width = form.height = 28;
  std::vector<uint8_t> out(28 * 28 * 3);
  EXPECT_THAT(
      reader_.ReadFrames(video.bytes, *facts, {30}, form, absl::MakeSpan(out))
          .message(),
      HasSubstr("below 30"));
  // A list of packets is that of the file whose facts were asked for before.
  const OpenVideo other(
      MakeVideo("fewer.mp4", "64x48", "0.5", "-c:v libx264 -pix_fmt yuv420p"));
  const auto place = [&](size_t) { return absl::MakeSpan(out); };
  const auto accept = [](const VideoFacts&) { return absl::OkStatus(); };
  EXPECT_TRUE(reader_.ReadChecked(other.bytes, accept, {14}, form, place).ok());
  EXPECT_TRUE(reader_.ReadChecked(video.bytes, accept, {29}, form, place).ok());
  EXPECT_TRUE(reader_.ReadFacts(other.bytes).ok());
  EXPECT_TRUE(reader_.ReadFrames(video.bytes, *facts, {29}, form, place).ok());
  EXPECT_EQ(reader_
                .ReadChecked(
                    video.bytes,
                    [](const VideoFacts&) {
                      return absl::AbortedError("another video");
                    },
                    {29}, form, place)
                .message(),
            "another video");
  facts->table.frames.pop_back();
  EXPECT_THAT(
      reader_.ReadFrames(video.bytes, *facts, {3}, form, absl::MakeSpan(out))
          .message(),
      HasSubstr("has 30 frames, not 29"));
}

}  // namespace
}  // namespace ballast
