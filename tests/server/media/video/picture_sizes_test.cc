// server/media/video/decoder/picture_sizes.h, by the reader of videos.

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
#include "tests/fakes/read_file.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class PictureSizesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "needs the program ffmpeg";
  }

  void ExpectRefused(const std::string& path, const std::string& found,
                     const std::string& wanted) {
    const auto facts = reader_.ReadFacts(OpenVideo(path).bytes);
    EXPECT_THAT(std::string(facts.status().message()),
                HasSubstr(absl::StrCat("is ", found, " pixels, the video ",
                                       wanted, "; wanted one size")))
        << path;
  }

  VideoReader reader_{1};
};

// The numbers of 32 bits that MP4 has.
std::string Numbers(const std::vector<uint32_t>& numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(number >> shift & 255);
    }
  }
  return bytes;
}

uint32_t NumberAt(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = at; i < at + 4; ++i) {
    number = number << 8 | static_cast<uint8_t>(bytes.at(i));
  }
  return number;
}

std::string Box(const std::string& name, const std::string& body) {
  return Numbers({static_cast<uint32_t>(body.size() + 8)}) + name + body;
}

// Where the boxes of a path begin, from the outermost one on.
std::vector<size_t> FindBoxes(const std::string& file,
                              const std::vector<std::string>& path) {
  std::vector<size_t> found;
  size_t at = 0;
  for (const std::string& name : path) {
    while (file.compare(at + 4, 4, name) != 0) at += NumberAt(file, at);
    found.push_back(at);
    at += 8;
  }
  return found;
}

// The pictures of two MP4 files in a track with both sample descriptions, each
// after its chunk's, as edits without encoding write it. Both have `frames`.
std::string JoinDescriptions(std::string first, const std::string& second,
                             uint32_t frames) {
  const std::vector<std::string> path = {"moov", "trak", "mdia", "minf",
                                         "stbl"};
  const auto body = [&](const std::string& file, const std::string& name) {
    std::vector<std::string> to = path;
    to.push_back(name);
    const size_t at = FindBoxes(file, to).back();
    return file.substr(at + 8, NumberAt(file, at) - 8);
  };
  const std::string sizes = body(second, "stsz").substr(12);
  uint32_t bytes = 0;
  for (size_t i = 0; i < frames; ++i) bytes += NumberAt(sizes, 4 * i);
  const std::string pictures =
      second.substr(NumberAt(body(second, "stco"), 8), bytes);
  const std::vector<size_t> parents = FindBoxes(first, path);
  const size_t stbl = parents.back();
  const uint32_t old_length = NumberAt(first, stbl);
  const auto table = [&](uint32_t place) {
    return Box("stbl",
               Box("stsd", Numbers({0, 2}) + body(first, "stsd").substr(8) +
                               body(second, "stsd").substr(8)) +
                   Box("stts", Numbers({0, 1, 2 * frames, 512})) +
                   Box("stss", Numbers({0, 2, 1, frames + 1})) +
                   Box("stsc", Numbers({0, 2, 1, frames, 1, 2, frames, 2})) +
                   Box("stsz", Numbers({0, 0, 2 * frames}) +
                                   body(first, "stsz").substr(12) + sizes) +
                   Box("stco", Numbers({0, 2, NumberAt(body(first, "stco"), 8),
                                        place})));
  };
  const auto longer = static_cast<uint32_t>(table(0).size()) - old_length;
  const size_t place = first.size() + longer + 8;
  const std::string joined = table(static_cast<uint32_t>(place));
  for (const size_t parent : parents) {
    first.replace(parent, 4, Numbers({NumberAt(first, parent) + longer}));
  }
  first.replace(stbl, old_length, joined);
  // An edit list would end with the first one's pictures.
  first.replace(FindBoxes(first, {"moov", "trak", "edts"}).back() + 4, 4,
                "free");
  return first + Box("mdat", pictures);
}

// Half a second of each size, encoded as `codec` says in files of container
// `half`, one after the other without encoding again. Returns the path.
std::string Joined(const std::string& name, const std::string& codec,
                   const std::string& half,
                   const std::vector<std::string>& sizes,
                   const std::string& container,
                   const std::string& options = "") {
  std::string list;
  for (const std::string& size : sizes) {
    std::string arguments = codec;
    if (name == "dv") {  // its two sizes are of two rates
      arguments += size == "720x480" ? " -r 30000/1001 -pix_fmt yuv411p"
                                     : " -r 25 -pix_fmt yuv420p";
    } else if (!absl::StrContains(arguments, "-pix_fmt")) {
      arguments += name == "mjpeg"  ? " -pix_fmt yuvj420p"
                   : name == "none" ? ""
                                    : " -pix_fmt yuv420p";
    }
    const std::string path =
        VideoPath(absl::StrCat("half_", name, "_", size, ".", half));
    RunFfmpeg(absl::StrCat("-f lavfi -i testsrc2=size=", size,
                           ":rate=30:duration=0.5 ", arguments, " ", path,
                           " 2>/dev/null"));
    absl::StrAppend(&list, "file '", path, "'\n");
  }
  const std::string listed = VideoPath("halves.txt");
  std::ofstream(listed, std::ios::binary) << list;
  const std::string path =
      VideoPath(absl::StrCat("sizes_", name, ".", container));
  RunFfmpeg(absl::StrCat("-f concat -safe 0 -i ", listed, " -c copy ", options,
                         path));
  return path;
}

// Videos of which the second half is larger. Encoders of MP4 write headers into
// the sample description alone, so the halves come from other containers.
TEST_F(PictureSizesTest, SizesThatChangeAreRefusedByTheFacts) {
  struct {
    const char* name;
    const char* codec;
    const char* half;  // its container
    std::vector<const char*> containers;
    const char* small = "112x84";
    const char* large = "224x168";
  } const kCodecs[] = {
      {"h264", "-c:v libx264 -bf 0", "ts", {"ts", "mkv", "mp4", "mov", "flv"}},
      {"hevc",
       "-c:v libx265 -bf 0 -x265-params log-level=none:repeat-headers=1",
       "ts",
       {"ts", "mkv", "mp4"}},
      {"vp8", "-c:v libvpx -deadline realtime", "webm", {"webm", "avi"}},
      {"vp9",
       "-c:v libvpx-vp9 -deadline realtime -cpu-used 8",
       "webm",
       {"webm", "ivf", "mp4"}},
      {"av1", "-c:v libsvtav1 -preset 12", "ivf", {"ivf", "webm", "mp4"}},
      {"mpeg2", "-c:v mpeg2video", "ts", {"ts", "mkv", "mp4"}},
      {"mpeg4", "-c:v mpeg4", "avi", {"avi", "mkv", "mp4"}},
      {"mjpeg", "-c:v mjpeg", "avi", {"avi", "mov"}},
      {"flv1", "-c:v flv", "flv", {"flv"}},
      {"h263", "-c:v h263", "avi", {"avi", "3gp"}, "128x96", "176x144"},
      {"png", "-c:v png -pix_fmt rgb24", "mov", {"mov", "avi"}},
      {"prores", "-c:v prores_ks -pix_fmt yuv422p10le", "mov", {"mov", "mkv"}},
      {"cinepak", "-c:v cinepak -pix_fmt rgb24", "avi", {"avi", "mov"}},
      {"dnxhr",
       "-c:v dnxhd -profile:v dnxhr_lb -pix_fmt yuv422p",
       "mov",
       {"mov", "mkv"},
       "256x128",
       "320x240"},
      {"dv", "-c:v dvvideo", "avi", {"avi", "mov"}, "720x480", "720x576"},
  };
  for (const auto& codec : kCodecs) {
    for (const char* container : codec.containers) {
      const bool is_hevc_of_mp4 =
          codec.name == std::string("hevc") && container == std::string("mp4");
      ExpectRefused(Joined(codec.name, codec.codec, codec.half,
                           {codec.small, codec.large}, container,
                           is_hevc_of_mp4 ? "-tag:v hev1 " : ""),
                    codec.large, codec.small);
    }
  }
  // A size of pictures that are no key frames, as encoders of calls choose it.
  const std::string shrunk = VideoPath("shrunk.mp4");
  RunFfmpeg(absl::StrCat(
      "-f lavfi -i testsrc2=size=320x240:rate=30:duration=0.5 -c:v libsvtav1 "
      "-preset 8 -svtav1-params resize-mode=1:resize-denom=12:resize-kf-denom=8"
      " -pix_fmt yuv420p ",
      shrunk, " 2>/dev/null"));
  ExpectRefused(shrunk, "213x160", "320x240");
  // Two descriptions of one track.
  std::vector<std::string> described;
  for (const char* size : {"112x84", "224x168"}) {
    described.push_back(
        ReadFile(MakeVideo(absl::StrCat(size, ".mp4"), size, "0.1",
                           "-c:v libx264 -bf 0 -pix_fmt yuv420p")));
  }
  const std::string both = VideoPath("descriptions.mp4");
  std::ofstream(both, std::ios::binary)
      << JoinDescriptions(described[0], described[1], 3);
  ExpectRefused(both, "224x168", "112x84");
  // Of one size both are delivered.
  std::ofstream(both, std::ios::binary)
      << JoinDescriptions(described[0], described[0], 3);
  const OpenVideo video(both);
  const auto facts = reader_.ReadFacts(video.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  FrameForm form;
  form.width = 112;
  form.height = 84;
  std::vector<uint8_t> frames(size_t{2} * 112 * 84 * 3);
  const std::vector<uint32_t> wanted = {0, 5};
  const absl::Status read = reader_.ReadFrames(video.bytes, *facts, wanted,
                                               form, absl::MakeSpan(frames));
  EXPECT_TRUE(read.ok()) << read;
}

// Bits of a header, the highest first: pairs of a value and its width.
std::string Packed(const std::vector<std::pair<uint32_t, int>>& fields) {
  std::string bytes;
  int used = 0;
  for (const auto& [value, width] : fields) {
    for (int bit = width; bit-- > 0; ++used) {
      if (used % 8 == 0) bytes += '\0';
      bytes.back() = static_cast<char>(bytes.back() | (value >> bit & 1)
                                                          << (7 - used % 8));
    }
  }
  return bytes;
}

// Five pictures of VC-1's advanced profile, a sequence header before each:
// SMPTE 421M. No program here writes VC-1, and what follows the headers is no
// picture.
std::string MakeVc1(uint32_t width, uint32_t height) {
  const std::string sequence = Packed({{3, 2},
                                       {0, 3},
                                       {1, 2},
                                       {0, 9},
                                       {width / 2 - 1, 12},
                                       {height / 2 - 1, 12},
                                       {0, 4},
                                       {1, 1},
                                       {0, 3},
                                       {1, 1}});
  const std::string entry = Packed({{0, 1}, {1, 1}, {0, 14}, {1, 1}});
  const std::string picture = Packed({{6, 3}, {5, 5}}) + std::string(30, 'U');
  std::string all;
  for (int i = 0; i < 5; ++i) {
    const std::string mark("\0\0\1", 3);
    all += mark + '\x0F' + sequence + mark + '\x0E' + entry + mark + '\x0D' +
           picture;
  }
  return all;
}

// Ten pictures of VP6 in FLV, the last five of another number of macroblocks,
// likewise without pictures behind the headers.
std::string MakeVp6(uint8_t columns, uint8_t other_columns) {
  std::string file("FLV\1\1\0\0\0\11\0\0\0\0", 13);
  for (uint32_t i = 0; i < 10; ++i) {
    const char count = static_cast<char>(i < 5 ? columns : other_columns);
    const std::string body = std::string("\x14\0\x10\x46", 4) + '\6' + count +
                             '\6' + count + std::string(40, 'U');
    const auto bytes = static_cast<uint32_t>(body.size());
    const std::string tag = '\11' + Numbers({bytes}).substr(1) +
                            Numbers({33 * i}).substr(1) + std::string(4, '\0') +
                            body;
    file += tag + Numbers({static_cast<uint32_t>(tag.size())});
  }
  return file;
}

TEST_F(PictureSizesTest, SizesOfStreamsThatNoProgramWrites) {
  const std::string raw = VideoPath("sizes.vc1");
  std::ofstream(raw, std::ios::binary) << MakeVc1(112, 84) << MakeVc1(224, 168);
  for (const char* container : {"mkv", "asf", "avi", "ts"}) {
    const std::string path = VideoPath(absl::StrCat("vc1.", container));
    RunFfmpeg(absl::StrCat("-framerate 30 -f vc1 -i ", raw, " -c copy ", path,
                           " 2>/dev/null"));
    ExpectRefused(path, "224x168", "112x84");
  }
  const std::string flv = VideoPath("vp6.flv");
  std::ofstream(flv, std::ios::binary) << MakeVp6(7, 14);
  ExpectRefused(flv, "224x96", "112x96");
}

// Codecs that tell no size: raw pictures by their length; the others have the
// container's, and what is accepted is delivered.
TEST_F(PictureSizesTest, SizesOfCodecsThatTellNone) {
  for (const auto& [codec, container] :
       {std::pair("rawvideo -pix_fmt yuv420p", "avi"),
        std::pair("huffyuv", "avi"), std::pair("ffv1", "mkv"),
        std::pair("wmv1", "avi"), std::pair("wmv2", "avi"),
        std::pair("msmpeg4v2", "avi"), std::pair("msmpeg4", "avi")}) {
    SCOPED_TRACE(codec);
    const std::string path =
        Joined("none", absl::StrCat("-c:v ", codec), container,
               {"112x84", "224x168"}, container);
    const OpenVideo video(path);
    const auto facts = reader_.ReadFacts(video.bytes);
    if (absl::StartsWith(codec, "raw")) {
      EXPECT_THAT(std::string(facts.status().message()),
                  HasSubstr("the picture of packet 15 has "));
      continue;
    }
    ASSERT_TRUE(facts.ok()) << facts.status();
    FrameForm form;
    form.width = 112;
    form.height = 84;
    std::vector<uint32_t> all(facts->frames());
    std::iota(all.begin(), all.end(), 0);
    std::vector<uint8_t> frames(all.size() * 112 * 84 * 3);
    const absl::Status read = reader_.ReadFrames(video.bytes, *facts, all, form,
                                                 absl::MakeSpan(frames));
    EXPECT_TRUE(read.ok()) << read;
  }
}

}  // namespace
}  // namespace ballast
